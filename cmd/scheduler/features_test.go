package main

import (
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// The scheduler does not start with a feature gate that would make it miscount, and names the gate.
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
