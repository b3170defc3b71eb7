package main

import (
	"strings"
	"testing"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The metrics of both registries are served, and none stands in both, which would fail every scrape.
func TestMetricsOfBothRegistries(t *testing.T) {
	registerMetrics()
	planDuration.Observe(1)
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
	}
	all := strings.Join(names, " ") + " "
	for _, want := range []string{
		"spot_aware_scheduler_controller_plan_duration_seconds ", "spot_aware_scheduler_controller_writes_total ",
		"kubernetes_build_info ", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no metric %s in %s", want, all)
		}
	}
}
