package main

import (
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// A scheduler that would miscount does not start, and says which gate is the reason.
func TestUnsupportedFeatureGates(t *testing.T) {
	for flag, refused := range map[string]bool{
		"GenericWorkload=true": true,
		"AllAlpha=true":        true,
		"AllBeta=true":         false,
	} {
		t.Run(flag, func(t *testing.T) {
			gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
			if err := gates.Set(flag); err != nil {
				t.Fatal(err)
			}
			err := checkFeatures(gates)
			if (err != nil) != refused {
				t.Errorf("error %v; want one: %t", err, refused)
			}
			if err != nil && !strings.Contains(err.Error(), "GenericWorkload=true") {
				t.Errorf("error %q does not name the gate", err)
			}
		})
	}
}
