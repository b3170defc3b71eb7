package decision_test

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestAssignmentAdmits(t *testing.T) {
	for assignment, want := range map[decision.AssignedCapacity]struct{ onDemand, spot bool }{
		decision.Unassigned:       {true, true},
		decision.AssignedAny:      {true, true},
		decision.AssignedOnDemand: {true, false},
		decision.AssignedSpot:     {false, true},
	} {
		if got := assignment.Admits(decision.OnDemand); got != want.onDemand {
			t.Errorf("%q admits on-demand: %t", assignment, got)
		}
		if got := assignment.Admits(decision.Spot); got != want.spot {
			t.Errorf("%q admits spot: %t", assignment, got)
		}
	}
}
