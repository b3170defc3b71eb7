package decision

import (
	"fmt"
	"strings"
	"time"
)

// Node is what a decision needs to know of a node.
type Node struct {
	Capacity Capacity
	Pool     Pool
	Signal   SignalClass
}

// Verdict is the answer to whether a pod may go to a node. Admitted is yes; every other value is one reason why not.
type Verdict int8

const (
	// Admitted: it may.
	Admitted Verdict = iota
	// NodeReclaimed: the node has a reclaim signal.
	NodeReclaimed
	// NodeDrained: the node has a drain signal or is being deleted.
	NodeDrained
	// OverBudget: the node is spot, and the revision's spot budget is used up.
	OverBudget
	// OnFloorOrdinal: the node is spot, and the pod's ordinal is one of the floor's.
	OnFloorOrdinal
	// NodeSettling: as OverBudget or OnFloorOrdinal, on a node whose capacity label may still arrive.
	NodeSettling
	// NodeHeld: the node's capacity label may still arrive, and a pod that must have on-demand waits and could use the node.
	NodeHeld
	// PoolFull: the node's spot pool holds as many of the revision as it may.
	PoolFull
	// OverflowPreempts: the node is on-demand, has room only after an eviction, and the pod is beyond the floor.
	OverflowPreempts
	// OverflowRefused: the node is on-demand, the pod is beyond the floor, and overflow is Never.
	OverflowRefused

	// Verdicts is how many there are.
	Verdicts = iota
)

// Admit decides whether the pod may go to node. morePlaced is how many more of the revision stand on spot than the plan was
// made for (preemption and nominated pods are tried that way); inPool is how many of it stand on spot nodes of the node's pool.
func (p *Plan) Admit(node Node, morePlaced, inPool int) Verdict {
	switch {
	case node.Signal == Reclaim:
		return NodeReclaimed
	case node.Signal == Drain:
		return NodeDrained
	case node.Capacity.Type == OnDemand && p.KeptOffOnDemand():
		return OverflowRefused
	case node.Capacity.Type == OnDemand || p.Grant != NotGranted:
		return Admitted
	case !p.Exempt && !p.WithinBudget(morePlaced):
		switch {
		case node.Capacity.Source == Settling:
			return NodeSettling
		case p.ordered:
			return OnFloorOrdinal
		}
		return OverBudget
	case p.capped(node, inPool):
		return PoolFull
	}
	return Admitted
}

// Held returns the answer for a Settling node that a waiting pod could use that must have on-demand, where v is the answer of Admit. No other pod
// takes the node before its capacity type is known, whatever its Grant: once such a node is full of replicas that may run on spot, it is
// lost for the floors. It cannot last longer than Policy.LabelGrace.
func Held(v Verdict) Verdict {
	if v == Admitted {
		return NodeHeld
	}
	return v
}

func (p *Plan) capped(node Node, inPool int) bool {
	return p.PoolCap > 0 && node.Capacity.Type == Spot && node.Pool != (Pool{}) && inPool >= p.PoolCap
}

// Reason says a verdict in words: constants plus numbers, and what the pod waits for.
func (p *Plan) Reason(v Verdict) string {
	switch v {
	case NodeReclaimed:
		return "node is being reclaimed"
	case NodeDrained:
		return "node is being drained"
	case OverBudget:
		return fmt.Sprintf("spot budget used up: %d of %d replicas of %s may run on spot%s",
			p.placed.Spot, p.Budget, p.revision, p.keptOffSpot("room in the spot budget"))
	case OnFloorOrdinal:
		later := ""
		if p.holdsUpLater {
			later = ", and later ordinals wait for this one"
		}
		return fmt.Sprintf("ordinal kept off spot: the first %d of the ordinals of %s stay on on-demand%s%s",
			p.Floor, p.revision, later, p.keptOffSpot("a lower floor"))
	case NodeSettling:
		return "node has no capacity label yet and is too young to count as on-demand"
	case NodeHeld:
		// It names no pod: that may be another tenant's.
		return "node has no capacity label yet and is held for pods that wait for on-demand"
	case PoolFull:
		room := "room in another spot pool or on on-demand"
		if !p.MayTakeOnDemand() {
			room = "room in another spot pool"
		}
		return fmt.Sprintf("spot pool full: a pool may hold %d replicas of %s%s", p.PoolCap, p.revision, p.outlook(room))
	case OverflowPreempts:
		return fmt.Sprintf("overflow evicts no pod from on-demand: the floor of %s is %d", p.revision, p.Floor)
	case OverflowRefused:
		return "overflow Never: " + p.floorHeld() + p.keptOffOnDemand()
	}
	return ""
}

// floorHeld says why the pod is beyond the floor.
func (p *Plan) floorHeld() string {
	switch {
	case p.Floor == 0:
		return fmt.Sprintf("%s has no floor", p.revision)
	case p.ordered:
		return fmt.Sprintf("only the first %d of the ordinals of %s may run on on-demand", p.Floor, p.revision)
	case !p.floorMet():
		return fmt.Sprintf("the pod was assigned beyond the floor of %d of %s", p.Floor, p.revision)
	}
	return fmt.Sprintf("on-demand holds the floor of %d of %s", p.Floor, p.revision)
}

// keptOffOnDemand says what a pod waits for that overflow Never keeps off on-demand. If the budget keeps it off spot too, there are as many
// replicas as the workload wants.
func (p *Plan) keptOffOnDemand() string {
	switch {
	case !p.MayTakeSpot():
		return p.outlook("a replica to leave")
	case p.holdsUpLater:
		return ", and later ordinals wait for this one (waits for room on spot)"
	}
	return " (waits for room on spot)"
}

// Waits says what a pod waits for that no node took, for a person.
func (p *Plan) Waits() string {
	switch {
	case p.ordered && !p.MayTakeSpot():
		return p.Reason(OnFloorOrdinal)
	case !p.MayTakeSpot():
		return p.Reason(OverBudget)
	case p.KeptOffOnDemand():
		return p.Reason(OverflowRefused)
	case p.onlySpot && p.assigned == AssignedSpot:
		return "no node takes it: it was assigned spot, and admits no on-demand node"
	case p.onlySpot:
		return "no node takes it: its own node selector or affinity admits only spot"
	case p.onlyOnDemand:
		return "no node takes it: its own node selector or affinity admits only on-demand"
	case p.PoolCap > 0 && p.Grant == NotGranted:
		return fmt.Sprintf("no node takes it: it may go to on-demand, and to spot pools with less than %d replicas of %s", p.PoolCap, p.revision)
	}
	return "no node takes it: it may go to on-demand and to spot"
}

// Placed returns what stood where when the plan was made.
func (p *Plan) Placed() Placed { return p.placed }

// Budgeted says how the revision stands to its budget, for a person.
func (p *Plan) Budgeted() string {
	if p.ordered {
		return fmt.Sprintf("the first %d of the ordinals of %s belong on on-demand", p.Floor, p.revision)
	}
	return fmt.Sprintf("before it %d of %d replicas that may be on spot were there, of %s", p.placed.Spot, p.Budget, p.revision)
}

// keptOffSpot says what a pod waits for that the floor keeps off spot: otherwise is what lets it run if on-demand cannot.
func (p *Plan) keptOffSpot(otherwise string) string {
	if p.onlySpot && p.assigned == AssignedSpot {
		return "; the pod was assigned spot, and admits no on-demand node" + p.outlook(otherwise)
	}
	if p.onlySpot {
		return "; its own node selector or affinity admits only spot, but exemptions are ignored" + p.outlook(otherwise)
	}
	if p.KeptOffOnDemand() {
		return p.outlook("a replica to leave")
	}
	return p.outlook("on-demand room")
}

// outlook says what the pod waits for.
func (p *Plan) outlook(room string) string {
	if p.fallbackAfter == Never || p.onlyOnDemand {
		return fmt.Sprintf(" (waits for %s)", room)
	}
	return fmt.Sprintf(" (waits for %s, takes any spot node after %s)", room, short(p.fallbackAfter))
}

// short writes 5m for what time.Duration writes as 5m0s.
func short(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Outcome is why a pod stands where it was placed: the label of the placements metric.
type Outcome string

// Every Outcome there is.
const (
	// OnFloor: on on-demand, as part of the floor.
	OnFloor Outcome = "floor"
	// Overflow: on on-demand beyond the floor, because no spot node took it or the budget is used up.
	Overflow Outcome = "overflow"
	// InBudget: on spot, within the budget.
	InBudget Outcome = "budget"
	// ByExemption: on spot, because the pod's own selector or affinity admits nothing else, in a workload that has a floor.
	ByExemption Outcome = "exempt"
	// ByScheduleAnyway, ByFallback and ByRelief: on spot beyond the budget or cap, by the Grant of that name.
	ByScheduleAnyway Outcome = "schedule-anyway"
	ByFallback       Outcome = "fallback"
	ByRelief         Outcome = "rollout-relief"
)

// Outcome returns why the pod stands on node, having been placed there under this plan. inPool is as in Admit.
func (p *Plan) Outcome(node Node, inPool int) Outcome {
	switch {
	case node.Capacity.Type == OnDemand && !p.BeyondFloor():
		return OnFloor
	case node.Capacity.Type == OnDemand:
		return Overflow
	case p.Exempt && p.Floor > 0:
		return ByExemption
	case p.WithinBudget(0) && !p.capped(node, inPool):
		return InBudget
	case p.Grant == Anyway:
		return ByScheduleAnyway
	case p.Grant == FellBack:
		return ByFallback
	case p.Grant == Relieved:
		return ByRelief
	}
	return InBudget
}
