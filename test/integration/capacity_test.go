package integration

import (
	"slices"
	"testing"
)

func TestPlacementOnDemandFull(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 2), spotNodes(3, 10)))
	s.fillNode("od-1", 2)
	s.fillNode("od-2", 2)
	s.deploy("app", 10, annotated(minOnDemand, "3"))

	s.eventually(soon, s.hasSplit("app", split{spot: 7, waiting: 3}))
	s.awaitIdleScheduler()
	s.must(s.hasSplit("app", split{spot: 7, waiting: 3})())
	s.eventually(soon, s.hasMetric(3, "spot_aware_scheduler_waiting_for_on_demand_pods", nil))
	s.eventually(soon, s.pendingReason("app", 3, "spot budget used up: 7 of at most 7 replicas"))

	// The pods waited only for on-demand capacity.
	s.addNodes(nodes("more", "on-demand", "m5.xlarge", 1, 3)...)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 3, spot: 7}))
}

func TestPlacementSpotFull(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 10), spotNodes(3, 1)))
	s.deploy("app", 10)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 7, spot: 3}))
	for reason, want := range map[string]int{"floor": 1, "overflow": 6, "budget": 3} {
		s.eventually(soon, s.hasMetric(want, "spot_aware_scheduler_placements_total", map[string]string{"reason": reason}))
	}
}

// TestPlacementAllNodesFull has a workload wait for capacity of either type. It uses the capacity
// that is added first, and keeps its floor.
func TestPlacementAllNodesFull(t *testing.T) {
	s := start(t, slices.Concat(onDemand(1, 2), spotNodes(1, 2)))
	s.fillNode("od-1", 2)
	s.fillNode("spot-1", 2)
	s.deploy("app", 4, annotated(minOnDemand, "50%"))
	// The budget admits the pods to spot, but spot is as full as on-demand. The message does not
	// name the budget.
	s.eventually(soon, s.pendingReason("app", 4, "0/2 nodes are available: 2 Insufficient cpu."))
	s.addNodes(nodes("more", "spot", "c5.xlarge", 1, 4)...)
	s.eventually(soon, s.hasSplit("app", split{spot: 2, waiting: 2}))
	s.deletePod("fill-od-1-1")
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, spot: 2, waiting: 1}))
	s.deletePod("fill-od-1-2")
	s.eventually(soon, s.hasSplit("app", split{onDemand: 2, spot: 2}))
}
