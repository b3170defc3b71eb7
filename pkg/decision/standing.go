package decision

// Replica is one live pod of a workload.
type Replica struct {
	// Bound: it is bound to a node that exists, of the capacity type Capacity.
	Bound    bool
	Capacity CapacityType
	// Ordinal is that of Workload; meaningful for an ordered workload.
	Ordinal int
	// Exempt: the budget is lifted from it (Plan.Exempt). OnlySpot: its own node selector or affinity admits no on-demand node, whether or
	// not that exempts it.
	Exempt, OnlySpot bool
}

// Standing compares where the live pods of a whole workload are with its floor. The scheduler's metrics, the extender's, the reports of
// kubectl spot and the rebalancer all use it, so that they agree.
type Standing struct {
	// OnDemand and Spot count the bound replicas.
	OnDemand, Spot int
	// FloorOnSpot are the replicas on spot that the floor lacks on on-demand.
	FloorOnSpot int
	// FloorOnDemand are the replicas on on-demand that make up the floor: of an ordered workload its first ordinals, else as many as the floor
	// has. Surplus are the others on on-demand.
	FloorOnDemand, Surplus int
	// FloorDeficit is how many replicas the floor lacks on on-demand: those that it should have, at most the live ones, less FloorOnDemand.
	// Replicas that wait are lacking too. It is reported and healed, and not a breach: rollouts and scale-downs cause it, not placements.
	FloorDeficit int
	// OverBudget is how many replicas are on spot that should not be: those of each revision beyond its budget, or the ordinals of the floor.
	OverBudget int
	// Misplaced are the replicas of an ordered workload that are counted by OverBudget, as positions in the list of their revision.
	Misplaced []Position
	// Heals is how many replicas on spot belong on on-demand and could run there.
	Heals int
}

// Position names a replica by its revision and its place in that.
type Position struct{ Revision, Replica int }

// StandingOf returns the standing of a workload of that many desired replicas and that floor, with the live replicas of each of its revisions.
// ordered is Workload.Ordered.
//
// A deficit of the floor counts over all revisions, because all of them serve; the budget is each revision's own. Exempt replicas have
// neither.
func StandingOf(desired, floor int, ordered bool, revisions [][]Replica) Standing {
	var s Standing
	live, onSpot, curable := 0, 0, 0 // without exempt replicas
	for i, replicas := range revisions {
		spot, counted := 0, 0 // on spot: all of the revision, and without exempt replicas
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
						s.Heals++
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
					curable++
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
		s.Heals = min(curable, max(s.OverBudget, s.FloorDeficit))
	}
	s.Surplus = s.OnDemand - s.FloorOnDemand
	return s
}
