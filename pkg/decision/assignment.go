package decision

// Assignment is the capacity type that a pod was assigned while a scheduling gate held it, for autoscalers to see.
type Assignment int8

const (
	// Unassigned: none was assigned.
	Unassigned Assignment = iota
	// AssignedOnDemand: the pod belongs to the floor, and requires on-demand.
	AssignedOnDemand
	// AssignedSpot: the pod is beyond the floor, and requires spot, which it would not without the assignment: that exempts it from nothing.
	AssignedSpot
	// AssignedAny: the pod is beyond the floor, and requires neither.
	AssignedAny
)

var assignments = [...]string{AssignedOnDemand: "on-demand", AssignedSpot: "spot", AssignedAny: "any"}

// String returns the word that annotations use for a; "" for Unassigned.
func (a Assignment) String() string { return assignments[a] }

// ParseAssignment is the opposite of String; Unassigned for any word that it does not know.
func ParseAssignment(word string) Assignment {
	for i, known := range assignments {
		if word == known {
			return Assignment(i)
		}
	}
	return Unassigned
}

// Admits reports whether a pod that was assigned a may take capacity of that type.
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
func (a Assignment) Beyond() bool { return a == AssignedSpot || a == AssignedAny }

// Replacement returns the pod that p's workload makes in place of p, as far as it is known: nothing has been assigned to that or granted yet.
func (p *Pod) Replacement() *Pod {
	next := *p
	next.Assigned, next.Granted = Unassigned, NotGranted
	if p.Assigned == AssignedSpot {
		next.OnlySpot = false // the assignment wrote that
	}
	return &next
}
