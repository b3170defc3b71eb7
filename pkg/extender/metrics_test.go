package extender

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// Alerts use increases, and a series that appears with its first count is not one. The dashboard
// finds the profile by the series of invalid_annotations_total.
func TestInitialMetrics(t *testing.T) {
	w := newWorld(t)
	w.nodes(1, "spot")
	w.build("deployment web 1")
	full := false
	w.RegisterMetrics(func() bool { return full })
	served := func() string {
		t.Helper()
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "spot_aware_scheduler") {
				continue
			}
			if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
				t.Fatal(err)
			}
		}
		return text.String()
	}
	want := func(lines ...string) {
		t.Helper()
		text := served()
		for _, line := range lines {
			if !strings.Contains(text, "\nspot_aware_scheduler_"+line+"\n") {
				t.Errorf("the metrics have no %s:\n%s", line, text)
			}
		}
	}
	const profile = `{profile="spot-aware-scheduler"}`
	want(
		`caches_synced`+profile+` 0`,
		`placements_total{capacity_type="spot",profile="spot-aware-scheduler",reason="fallback"} 0`,
		`placements_total{capacity_type="on-demand",profile="spot-aware-scheduler",reason="floor"} 0`,
		`invalid_annotations_total`+profile+` 0`,
		`extender_request_duration_seconds_count{outcome="failed",verb="filter"} 0`,
		`longest_wait_for_on_demand_seconds`+profile+` 0`,
		`floor_deficit_replicas`+profile+` 0`,
	)
	// The metrics read the informers' caches.
	misplaced := podOf("web", 1)
	misplaced.Spec.NodeName = "spot-0"
	clustertest.Fill(t, w.factory, misplaced, w.objects["spot-0"])
	unmet := func() bool {
		text := served()
		return strings.Contains(text, "floors_unmet_workloads"+profile+" 1\n") && strings.Contains(text, "floor_deficit_replicas"+profile+" 1\n") &&
			strings.Contains(text, `bound_pods{capacity_type="spot",part="floor",profile="spot-aware-scheduler"} 1`) &&
			strings.Contains(text, `nodes{capacity_type="spot",profile="spot-aware-scheduler",source="label"} 1`)
	}
	for deadline := time.Now().Add(10 * time.Second); !unmet(); time.Sleep(time.Millisecond) { // observations are rate-limited
		if time.Now().After(deadline) {
			t.Fatalf("the floor of web is not reported as unmet:\n%s", served())
		}
	}
	full = true
	w.want("the floor", w.filter(podOf("web", 0)))
	w.clock.Step(time.Minute)
	want(`caches_synced`+profile+` 1`, `waiting_for_on_demand_pods`+profile+` 1`, `longest_wait_for_on_demand_seconds`+profile+` 60`)
}
