package decision

// Assignment is the capacity type that was assigned to a gated pod, where autoscalers can see it.
type Assignment int8

const (
	// Unassigned: no capacity type was assigned.
	Unassigned Assignment = iota
	// AssignedOnDemand: the pod belongs to the floor and requires on-demand.
	AssignedOnDemand
	// AssignedSpot: the pod is beyond the floor, and the assignment makes it require spot. It
	// exempts the pod from nothing.
	AssignedSpot
	// AssignedAny: the pod is beyond the floor and requires neither type.
	AssignedAny
)

var assignments = [...]string{AssignedOnDemand: "on-demand", AssignedSpot: "spot", AssignedAny: "any"}

// String returns the annotation value for a; "" for Unassigned.
func (a Assignment) String() string { return assignments[a] }

// ParseAssignment is the inverse of String. It returns Unassigned for any unknown word.
func ParseAssignment(word string) Assignment {
	for i, known := range assignments {
		if word == known {
			return Assignment(i)
		}
	}
	return Unassigned
}

// Admits reports whether a pod with assignment a may run on capacity of that type.
func (a Assignment) Admits(capacity CapacityType) bool {
	switch a {
	case AssignedOnDemand:
		return capacity == OnDemand
	case AssignedSpot:
		return capacity == Spot
	}
	return true
}

// Beyond reports whether the pod was assigned to run beyond the floor.
func (a Assignment) BeyondFloor() bool { return a == AssignedSpot || a == AssignedAny }

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
