package decision

// AssignedCapacity is the capacity type that the controller assigned to a gated pod, so that
// autoscalers see it.
type AssignedCapacity int8

const (
	// Unassigned means that no capacity type was assigned.
	Unassigned AssignedCapacity = iota
	// AssignedOnDemand means that the pod belongs to the floor and requires on-demand.
	AssignedOnDemand
	// AssignedSpot means that the pod is beyond the floor, and the assignment makes it require
	// spot. It exempts the pod from nothing.
	AssignedSpot
	// AssignedAny means that the pod is beyond the floor and requires neither type.
	AssignedAny
)

var assignedCapacities = [...]string{AssignedOnDemand: "on-demand", AssignedSpot: "spot", AssignedAny: "any"}

// String returns the annotation value for a; "" for Unassigned.
func (a AssignedCapacity) String() string { return assignedCapacities[a] }

// ParseAssignedCapacity is the inverse of String. It returns Unassigned for any unknown word.
func ParseAssignedCapacity(word string) AssignedCapacity {
	for i, known := range assignedCapacities {
		if word == known {
			return AssignedCapacity(i)
		}
	}
	return Unassigned
}

// Admits reports whether a pod with this assigned capacity may run on capacity of that type.
func (a AssignedCapacity) Admits(capacity CapacityType) bool {
	switch a {
	case AssignedOnDemand:
		return capacity == OnDemand
	case AssignedSpot:
		return capacity == Spot
	}
	return true
}

// Replacement returns the pod that p's workload creates to replace p, as far as it is known.
// Nothing has been assigned or granted to that pod yet.
func (p *Pod) Replacement() *Pod {
	next := *p
	next.Assigned, next.Granted = Unassigned, NotGranted
	if p.Assigned == AssignedSpot {
		next.OnlySpot = false // the assignment added this requirement
	}
	return &next
}

// AssignedToFloor reports whether the pod counts as part of the floor because of its node selector
// and affinity, or because of its assignment, as long as it is not on spot. Not every pod requires
// what it was assigned, and another scheduler may have bound it to a node whose label was set
// later.
func (p *Pod) AssignedToFloor(onSpot bool) bool {
	return !onSpot && (p.OnlyOnDemand || p.Assigned == AssignedOnDemand)
}
