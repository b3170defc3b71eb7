package main

import (
	"fmt"

	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// unsupported lists feature gates that would make the plugins count incorrectly, with the reason.
var unsupported = map[featuregate.Feature]string{
	// Snapshot.AssumePod and ForgetPod change a node without a new generation. placement.Counter
	// detects changed nodes by their generation.
	features.GenericWorkload: "it changes the scheduler's snapshot without new generations, so ReplicaSafety would miscount replicas on spot",
}

// checkFeatures refuses feature gates that could violate floors.
func checkFeatures(gates featuregate.FeatureGate) error {
	for feature, why := range unsupported {
		if gates.Enabled(feature) {
			return fmt.Errorf("--feature-gates: %s=true is not supported: %s; expected %s=false, the default (AllAlpha=true turns it on too)",
				feature, why, feature)
		}
	}
	return nil
}
