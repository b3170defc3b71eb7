package decision_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestParseAssignment(t *testing.T) {
	for _, a := range []decision.Assignment{decision.Unassigned, decision.AssignedOnDemand, decision.AssignedSpot, decision.AssignedAny} {
		if got := decision.ParseAssignment(a.String()); got != a {
			t.Errorf("ParseAssignment(%q) = %q", a, got)
		}
	}
	for _, word := range []string{"Spot", "on-demand ", "none", "x"} {
		if got := decision.ParseAssignment(word); got != decision.Unassigned {
			t.Errorf("ParseAssignment(%q) = %q, want none", word, got)
		}
	}
}

// An assignment, which anybody may have written, never lets a pod take spot that it may not take without. It only keeps it from room that is
// meant for the floor.
func TestAssigned(t *testing.T) {
	type outline struct {
		Prefer                                        decision.CapacityType
		MayTakeSpot, MayTakeOnDemand, Overflows, Must bool
	}
	three := decision.Workload{Desired: 3}
	for name, test := range map[string]struct {
		pod      decision.Pod
		placed   decision.Placed
		overflow decision.OverflowPolicy
		want     outline
	}{
		"not assigned, floor not met": {
			decision.Pod{Workload: three}, decision.Placed{}, decision.AllowOverflow,
			outline{Prefer: decision.OnDemand, MayTakeSpot: true, MayTakeOnDemand: true},
		},
		"any, floor not met": {
			decision.Pod{Workload: three, Assigned: decision.AssignedAny}, decision.Placed{}, decision.AllowOverflow,
			outline{Prefer: decision.Spot, MayTakeSpot: true, MayTakeOnDemand: true, Overflows: true},
		},
		"any, budget used up": {
			decision.Pod{Workload: three, Assigned: decision.AssignedAny}, decision.Placed{Spot: 2}, decision.AllowOverflow,
			outline{Prefer: decision.OnDemand, MayTakeOnDemand: true, Overflows: true, Must: true},
		},
		"any, overflow Never": {
			decision.Pod{Workload: three, Assigned: decision.AssignedAny}, decision.Placed{}, decision.NeverOverflow,
			outline{Prefer: decision.Spot, MayTakeSpot: true, Overflows: true},
		},
		"spot": {
			decision.Pod{Workload: three, Assigned: decision.AssignedSpot, OnlySpot: true}, decision.Placed{}, decision.AllowOverflow,
			outline{Prefer: decision.Spot, MayTakeSpot: true, Overflows: true},
		},
		"on-demand": {
			decision.Pod{Workload: three, Assigned: decision.AssignedOnDemand, OnlyOnDemand: true}, decision.Placed{}, decision.AllowOverflow,
			outline{Prefer: decision.OnDemand, MayTakeSpot: true, MayTakeOnDemand: true},
		},
		"granted": {
			decision.Pod{Workload: three, Assigned: decision.AssignedAny, Granted: decision.FellBack}, decision.Placed{Spot: 2}, decision.NeverOverflow,
			outline{Prefer: decision.OnDemand, MayTakeSpot: true, MayTakeOnDemand: true},
		},
		"an ordinal of the floor": {
			decision.Pod{Workload: decision.Workload{Desired: 3, Ordered: true}, Assigned: decision.AssignedAny}, decision.Placed{}, decision.AllowOverflow,
			outline{Prefer: decision.OnDemand, MayTakeOnDemand: true, Must: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := decision.Settings{MinOnDemand: decision.Count(1), Overflow: test.overflow, FallbackAfter: decision.Never}
			plan := decision.NewPlan(&test.pod, settings, test.placed, decision.Waiting{})
			got := outline{plan.Prefer, plan.MayTakeSpot(), plan.MayTakeOnDemand(), plan.Overflows(), plan.MustHaveOnDemand()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if plan.Grant != test.pod.Granted {
				t.Errorf("grant %d, want %d", plan.Grant, test.pod.Granted)
			}
		})
	}
}
