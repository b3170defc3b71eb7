package main

import (
	"fmt"

	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// checkFeatures refuses the feature gate GenericWorkload, which would make the plugins count
// incorrectly. Snapshot.AssumePod and ForgetPod change a node without a new generation, and
// placement.Counter detects changed nodes by their generation.
func checkFeatures(gates featuregate.FeatureGate) error {
	if !gates.Enabled(features.GenericWorkload) {
		return nil
	}
	return fmt.Errorf("--feature-gates: %[1]s=true is not supported: it changes the scheduler's snapshot without new generations, so "+
		"ReplicaSafety would miscount replicas on spot; expected %[1]s=false, the default (AllAlpha=true turns it on too)",
		features.GenericWorkload)
}
