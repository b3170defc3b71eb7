package placement

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// What a scrape of the scheduler shows of two profiles, and that it is named as Prometheus asks.
func TestMetrics(t *testing.T) {
	t.Cleanup(func() {
		placements.Reset()
		invalidAnnotations.Reset()
		decisionDuration.Reset()
	})
	RegisterMetrics("one", func() Observed {
		return Observed{WaitingForOnDemand: 2, FloorsUnmet: 3, FloorDeficit: 4,
			Nodes: map[decision.Capacity]int{{Type: decision.Spot, Source: decision.FromLabel}: 5}}
	})
	RegisterMetrics("two", func() Observed { return Observed{} })
	RecordPlacement("one", Placement{decision.OnDemand, decision.OnFloor})
	RecordPlacement("one", Placement{decision.Spot, decision.ByFallback})
	RecordPlacement("one", Placement{decision.Spot, decision.ByFallback})
	RecordInvalidAnnotations("one", 2)
	RecordDecision("one", FewNodes, 0.001)

	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), subsystem+"_") {
			if _, err := testutil.MetricFamilyToText(&text, family); err != nil {
				t.Fatal(err)
			}
		}
	}
	problems, err := testutil.NewPromLinter(bytes.NewReader(text.Bytes())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %+v, error %v; want none", problems, err)
	}

	want := []string{
		`spot_aware_scheduler_decision_duration_seconds_count{profile="one",search="few"} 1`,
		`spot_aware_scheduler_floor_deficit_replicas{profile="one"} 4`,
		`spot_aware_scheduler_floor_deficit_replicas{profile="two"} 0`,
		`spot_aware_scheduler_floors_unmet_workloads{profile="one"} 3`,
		`spot_aware_scheduler_floors_unmet_workloads{profile="two"} 0`,
		`spot_aware_scheduler_invalid_annotations_total{profile="one"} 2`,
		`spot_aware_scheduler_nodes{capacity_type="spot",profile="one",source="label"} 5`,
		`spot_aware_scheduler_placements_total{capacity_type="on-demand",profile="one",reason="floor"} 1`,
		`spot_aware_scheduler_placements_total{capacity_type="spot",profile="one",reason="fallback"} 2`,
		`spot_aware_scheduler_waiting_for_on_demand_pods{profile="one"} 2`,
		`spot_aware_scheduler_waiting_for_on_demand_pods{profile="two"} 0`,
	}
	var got []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}
