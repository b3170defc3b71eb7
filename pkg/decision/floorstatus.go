package decision

// Replica is a live pod of a workload.
type Replica struct {
	// Bound: the replica is bound to an existing node, whose capacity type is Capacity.
	Bound    bool
	Capacity CapacityType
	// Ordinal is as in Workload; it is set only for an ordered workload.
	Ordinal int
	// Exempt: the budget does not apply to the replica (Plan.Exempt). OnlySpot: its own node
	// selector or affinity admits no on-demand node, whether or not that exempts it.
	Exempt, OnlySpot bool
}

// FloorStatus compares the nodes of the live pods of a workload with its floor. The scheduler's
// metrics, the extender's metrics, the reports of kubectl spot and the rebalancer all use it, so
// that they agree.
type FloorStatus struct {
	// OnDemand and Spot count the bound replicas.
	OnDemand, Spot int
	// FloorOnSpot is the number of replicas on spot that the floor lacks on on-demand.
	FloorOnSpot int
	// FloorOnDemand is the number of replicas on on-demand that form the floor: the first ordinals
	// of an ordered workload, or else at most Floor replicas. Surplus is the number of other
	// replicas on on-demand.
	FloorOnDemand, Surplus int
	// FloorDeficit is the number of replicas that the floor lacks on on-demand, limited by the
	// number of live replicas. Pending replicas are lacking too. The deficit is reported and
	// healed, but it is not a breach: rollouts and scale-downs cause it, placements do not.
	FloorDeficit int
	// OverBudget is the number of replicas that run on spot against the policy: the replicas of
	// each revision beyond its budget, or the ordinals of the floor.
	OverBudget int
	// Misplaced lists the replicas of an ordered workload that OverBudget counts.
	Misplaced []Position
	// Healable is the number of replicas on spot that belong on on-demand and could run there.
	Healable int
}

// Position identifies a replica by the index of its revision and its index in the revision.
type Position struct{ Revision, Replica int }

// NewFloorStatus compares a workload with its floor. desired is its number of replicas, ordered is
// Workload.Ordered, and revisions has the live replicas of each revision.
//
// The floor deficit counts all revisions, because pods of every revision serve. Each revision has
// its own budget. Exempt replicas have neither deficit nor budget.
func NewFloorStatus(desired, floor int, ordered bool, revisions [][]Replica) FloorStatus {
	var s FloorStatus
	live, onSpot, healable := 0, 0, 0 // without exempt replicas
	for i, replicas := range revisions {
		spot, counted := 0, 0 // replicas on spot: all, and all without exempt replicas
		for j, r := range replicas {
			ofFloor := ordered && floor > 0 && r.Ordinal < floor && !r.Exempt
			switch {
			case r.Bound && r.Capacity == OnDemand:
				s.OnDemand++
				if ofFloor {
					s.FloorOnDemand++
				}
			case r.Bound:
				spot++
				if ofFloor {
					s.Misplaced = append(s.Misplaced, Position{i, j})
					if !r.OnlySpot {
						s.Healable++
					}
				}
			}
			if ofFloor && !(r.Bound && r.Capacity == OnDemand) {
				s.FloorDeficit++
			}
			if r.Exempt {
				continue
			}
			live++
			if r.Bound && r.Capacity == Spot {
				counted++
				onSpot++
				if !r.OnlySpot {
					healable++
				}
			}
		}
		s.Spot += spot
		if !ordered {
			s.OverBudget += min(counted, max(0, spot-(desired-floor)))
		}
	}
	if ordered {
		s.OverBudget, s.FloorOnSpot = len(s.Misplaced), len(s.Misplaced)
	} else {
		s.FloorOnDemand = min(floor, s.OnDemand)
		s.FloorDeficit = max(0, min(floor, live)-s.OnDemand)
		s.FloorOnSpot = min(onSpot, s.FloorDeficit)
		s.Healable = min(healable, max(s.OverBudget, s.FloorDeficit))
	}
	s.Surplus = s.OnDemand - s.FloorOnDemand
	return s
}
