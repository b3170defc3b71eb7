package main

import (
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics/legacyregistry"
)

// These metrics and formats exist only because of blank imports, as in the main package of
// kube-scheduler. No other test would fail without them.
func TestRegistrationsOfKubeScheduler(t *testing.T) {
	logging := logsapi.NewLoggingConfiguration()
	logging.Format = logsapi.JSONLogFormat
	if errs := logsapi.Validate(logging, nil, nil); len(errs) > 0 {
		t.Errorf("--logging-format=json: %v", errs)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kubernetes_build_info" {
			return
		}
	}
	t.Error("there is no metric kubernetes_build_info")
}
