package integration

import (
	"slices"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestPlacementOnDemandFull(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 2), live.Spot(3, 10)))
	s.fillNode("od-1", 2)
	s.fillNode("od-2", 2)
	s.Deploy("app", 10, live.Annotated(minOnDemand, "3"))

	s.Eventually(soon, s.HasSplit("app", split{Spot: 7, Waiting: 3}))
	s.awaitIdleScheduler()
	s.Must(s.HasSplit("app", split{Spot: 7, Waiting: 3})())
	s.Eventually(soon, s.hasMetric(3, "spot_aware_scheduler_waiting_for_on_demand_pods", nil))
	s.Eventually(soon, s.pendingReason("app", 3, "spot budget used up: 7 of at most 7 replicas"))

	// The pods waited only for on-demand capacity.
	s.AddNodes(live.Nodes("more", "on-demand", "m5.xlarge", 1, 3)...)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 3, Spot: 7}))
}

func TestPlacementSpotFull(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 10), live.Spot(3, 1)))
	s.Deploy("app", 10)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 7, Spot: 3}))
	for reason, want := range map[string]int{"floor": 1, "overflow": 6, "budget": 3} {
		s.Eventually(soon, s.hasMetric(want, "spot_aware_scheduler_placements_total", map[string]string{"reason": reason}))
	}
}

// TestPlacementAllNodesFull has a workload wait for capacity of either type. It uses the capacity
// that is added first, and keeps its floor.
func TestPlacementAllNodesFull(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(1, 2), live.Spot(1, 2)))
	s.fillNode("od-1", 2)
	s.fillNode("spot-1", 2)
	s.Deploy("app", 4, live.Annotated(minOnDemand, "50%"))
	// The budget admits the pods to spot, but spot is as full as on-demand. The message does not
	// name the budget.
	s.Eventually(soon, s.pendingReason("app", 4, "0/2 nodes are available: 2 Insufficient cpu."))
	s.AddNodes(live.Nodes("more", "spot", "c5.xlarge", 1, 4)...)
	s.Eventually(soon, s.HasSplit("app", split{Spot: 2, Waiting: 2}))
	s.deletePod("fill-od-1-1")
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Spot: 2, Waiting: 1}))
	s.deletePod("fill-od-1-2")
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 2, Spot: 2}))
}
