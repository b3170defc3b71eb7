package main

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
)

// The policy that is assumed without access to the configuration is the shipped one. Package
// apis/controller tests the same for the configuration of the controller.
func TestAssumedPolicyIsShipped(t *testing.T) {
	assumed, err := defaultPolicy()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := (&options{profile: config.DefaultProfile}).readPolicyFile("../../config/scheduler-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(shipped.Policy, assumed.Policy, all, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("policy (-shipped +assumed):\n%s", diff)
	}
	if diff := cmp.Diff(shipped.signals, assumed.signals, all, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("signals (-shipped +assumed):\n%s", diff)
	}
}
