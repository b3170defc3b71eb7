package main

import (
	"fmt"

	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// unsupported are feature gates under which the plugins would count wrongly.
var unsupported = map[featuregate.Feature]string{
	// Snapshot.AssumePod and ForgetPod change a node and keep its generation, by which placement.Counter knows which nodes have changed.
	features.GenericWorkload: "it changes the scheduler's snapshot in a way in which ReplicaSafety would miscount replicas on spot",
}

// checkFeatures refuses feature gates under which floors could be broken.
func checkFeatures(gates featuregate.FeatureGate) error {
	for feature, why := range unsupported {
		if gates.Enabled(feature) {
			return fmt.Errorf("--feature-gates: %s=true is not supported: %s; expected %s=false, the default (AllAlpha=true turns it on too)", feature, why, feature)
		}
	}
	return nil
}
