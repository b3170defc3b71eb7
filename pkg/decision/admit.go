package decision

import (
	"fmt"
	"strings"
	"time"
)

// Node is the part of a node's state that decisions depend on. Nodes with equal values are equal to
// the policy, except for the pods that run on them.
type Node struct {
	Capacity Capacity
	Pool     Pool
	// Zone is the value of the zone label, which a node without a Pool may have too.
	Zone   string
	Signal SignalClass
}

// Verdict is the answer to whether a pod may run on a node: Admitted, or the reason why not.
type Verdict int8

const (
	// Admitted means that the pod may run on the node.
	Admitted Verdict = iota
	// NodeReclaimed means that the node has a reclaim signal.
	NodeReclaimed
	// NodeDrained means that the node has a drain signal or is being deleted.
	NodeDrained
	// OverBudget means that the node is spot, and the revision's spot budget is used up.
	OverBudget
	// OnFloorOrdinal means that the node is spot, and the pod's ordinal belongs to the floor.
	OnFloorOrdinal
	// NodeSettling is as OverBudget, OnFloorOrdinal or AfterDisruptions, on a node that may still
	// receive its capacity label.
	NodeSettling
	// NodeReserved means that the node may still receive its capacity label, and a waiting pod that
	// requires on-demand could use the node.
	NodeReserved
	// PoolFull means that the node's spot pool already runs as many replicas of the revision as it
	// may.
	PoolFull
	// OverflowPreempts means that the node is on-demand, has room only after an eviction, and the
	// pod is beyond the floor.
	OverflowPreempts
	// OverflowRefused means that the node is on-demand, the pod is beyond the floor, and overflow
	// is Never.
	OverflowRefused
	// AfterDisruptions means that the node is spot, and the pod's Job has reached its disruption
	// limit.
	AfterDisruptions

	// Verdicts is the number of verdicts.
	Verdicts = iota
)

// Admit decides whether the pod may run on node. morePlaced is the number of replicas of the
// revision on spot that the plan does not count; preemption and nominated pods need it. inPool is
// the number of replicas of the revision on spot nodes of the node's pool.
func (p *Plan) Admit(node Node, morePlaced, inPool int) Verdict {
	switch {
	case node.Signal == Reclaim:
		return NodeReclaimed
	case node.Signal == Drain:
		return NodeDrained
	case node.Capacity.Type == OnDemand && p.ExcludedFromOnDemand():
		return OverflowRefused
	case node.Capacity.Type == OnDemand || p.Grant != NotGranted:
		return Admitted
	case !p.Exempt && !p.WithinBudget(morePlaced):
		switch {
		case node.Capacity.Source == Settling:
			return NodeSettling
		case p.requireOnDemand:
			return AfterDisruptions
		case p.pod.Workload.Ordered:
			return OnFloorOrdinal
		}
		return OverBudget
	case p.poolFull(node, inPool):
		return PoolFull
	}
	return Admitted
}

// AdmitReserved returns the verdict for a Settling node that is reserved: a waiting pod that
// requires on-demand could use it. v is the verdict of Admit. No other pod may use the node before
// its capacity type is known, not even with a Grant. Otherwise replicas that may run on spot could
// fill the node, and floors would find no room there. The reservation ends after at most
// Policy.LabelGrace.
func AdmitReserved(v Verdict) Verdict {
	if v == Admitted {
		return NodeReserved
	}
	return v
}

func (p *Plan) poolFull(node Node, inPool int) bool {
	return p.PoolCap > 0 && node.Capacity.Type == Spot && node.Pool != (Pool{}) && inPool >= p.PoolCap
}

// Reason describes a verdict in constant words and numbers, with the condition that the pod waits
// for.
func (p *Plan) Reason(v Verdict) string {
	switch v {
	case NodeReclaimed:
		return "node is being reclaimed"
	case NodeDrained:
		return "node is being drained"
	case OverBudget:
		return fmt.Sprintf("spot budget used up: %d of at most %d replicas of %s run on spot%s",
			p.placed.Spot, p.Budget, p.pod.Workload.Revision, p.floorWait("room in the spot budget"))
	case OnFloorOrdinal:
		later := ""
		if p.pod.Workload.BlocksLater {
			later = ", and later ordinals wait for this one"
		}
		return fmt.Sprintf("ordinal belongs to the floor: the first %d ordinals of %s must run on on-demand%s%s",
			p.Floor, p.pod.Workload.Revision, later, p.floorWait("a lower floor"))
	case NodeSettling:
		return "node has no capacity label yet and is too young to count as on-demand"
	case NodeReserved:
		// The reason does not name the waiting pod, because it may belong to another tenant.
		return "node has no capacity label yet and is reserved for pods that wait for on-demand"
	case PoolFull:
		room := "room in another spot pool or on on-demand"
		if !p.AdmitsOnDemand() {
			room = "room in another spot pool"
		}
		return fmt.Sprintf("spot pool full: at most %d replicas of %s may run in one pool%s",
			p.PoolCap, p.pod.Workload.Revision, p.waitHint(room))
	case OverflowPreempts:
		return fmt.Sprintf("overflow may not preempt on on-demand: the floor of %s is %d", p.pod.Workload.Revision, p.Floor)
	case OverflowRefused:
		return "overflow Never: " + p.beyondFloorReason() + p.overflowWait()
	case AfterDisruptions:
		return "disruption limit reached: " + p.DisruptionReason() + p.floorWait("a higher disruption limit")
	}
	return ""
}

func (p *Plan) beyondFloorReason() string {
	switch {
	case p.Floor == 0:
		return fmt.Sprintf("%s has no floor", p.pod.Workload.Revision)
	case p.pod.Workload.Ordered:
		return fmt.Sprintf("only the first %d ordinals of %s may run on on-demand", p.Floor, p.pod.Workload.Revision)
	case !p.floorMet():
		return fmt.Sprintf("the pod was assigned beyond the floor of %d of %s", p.Floor, p.pod.Workload.Revision)
	}
	return fmt.Sprintf("the floor of %d of %s is met", p.Floor, p.pod.Workload.Revision)
}

// overflowWait returns the condition that a pod waits for if overflow Never keeps it off on-demand.
// If the budget keeps the pod off spot too, the workload already has all its replicas.
func (p *Plan) overflowWait() string {
	switch {
	case !p.AdmitsSpot():
		return p.waitHint("another replica to terminate")
	case p.pod.Workload.BlocksLater:
		return ", and later ordinals wait for this one (waits for room on spot)"
	}
	return " (waits for room on spot)"
}

// WaitReason returns the condition that a pod waits for if no node is feasible.
func (p *Plan) WaitReason() string {
	switch {
	case p.requireOnDemand && !p.AdmitsSpot():
		return p.Reason(AfterDisruptions)
	case p.pod.Workload.Ordered && !p.AdmitsSpot():
		return p.Reason(OnFloorOrdinal)
	case !p.AdmitsSpot():
		return p.Reason(OverBudget)
	case p.ExcludedFromOnDemand():
		return p.Reason(OverflowRefused)
	case p.pod.OnlySpot && p.pod.Assigned == AssignedSpot:
		return "no feasible node: the pod was assigned spot and admits no on-demand node"
	case p.pod.OnlySpot:
		return "no feasible node: the pod's own constraints admit only spot"
	case p.pod.OnlyOnDemand && p.pod.Assigned == AssignedOnDemand:
		return "no feasible node: the pod was assigned on-demand and admits no spot node"
	case p.pod.OnlyOnDemand:
		return "no feasible node: the pod's own constraints admit only on-demand"
	case p.PoolCap > 0 && p.Grant == NotGranted:
		return fmt.Sprintf("no feasible node: the pod may run on on-demand, and in spot pools with fewer than %d replicas of %s", p.PoolCap,
			p.pod.Workload.Revision)
	}
	return "no feasible node: the pod may run on on-demand and on spot"
}

// Placed returns the numbers of placed replicas that the plan was made for.
func (p *Plan) Placed() PlacedPods { return p.placed }

// BudgetUsage describes the use of the revision's budget before this pod.
func (p *Plan) BudgetUsage() string {
	if p.pod.Workload.Ordered {
		return fmt.Sprintf("the first %d ordinals of %s must run on on-demand", p.Floor, p.pod.Workload.Revision)
	}
	return fmt.Sprintf("spot budget of %s: %d of %d used before this pod", p.pod.Workload.Revision, p.placed.Spot, p.Budget)
}

// floorWait returns the condition that a pod waits for if the floor keeps it off spot. alternative
// is the condition for a pod that cannot use on-demand.
func (p *Plan) floorWait(alternative string) string {
	if p.pod.OnlySpot && p.pod.Assigned == AssignedSpot {
		return "; the pod was assigned spot, and admits no on-demand node" + p.waitHint(alternative)
	}
	if p.pod.OnlySpot {
		return "; its own constraints admit only spot, but exemptions are ignored" + p.waitHint(alternative)
	}
	if p.ExcludedFromOnDemand() {
		return p.waitHint("another replica to terminate")
	}
	return p.waitHint("on-demand room")
}

// waitHint formats the condition that the pod waits for, and when it may fall back to spot.
func (p *Plan) waitHint(condition string) string {
	if p.fallbackAfter == Never || p.pod.OnlyOnDemand {
		return fmt.Sprintf(" (waits for %s)", condition)
	}
	return fmt.Sprintf(" (waits for %s, may run on any spot node after %s)", condition, short(p.fallbackAfter))
}

// short formats a duration without trailing zero units: 5m instead of 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Outcome is the reason for a pod's placement: a label value of the placements metric.
type Outcome string

// All outcomes.
const (
	// OnFloor means that on on-demand, as part of the floor, or because of the disruptions of its
	// Job.
	OnFloor Outcome = "floor"
	// Overflow means that on on-demand beyond the floor, because no spot node was feasible or the
	// budget is used up.
	Overflow Outcome = "overflow"
	// InBudget means that on spot, within the budget.
	InBudget Outcome = "budget"
	// ByExemption means that on spot, because the pod's own constraints admit only spot, in a
	// workload with a floor.
	ByExemption Outcome = "exempt"
	// ByScheduleAnyway, ByFallback and ByRolloutRelief: on spot beyond the budget or cap, because
	// of the Grant of that name.
	ByScheduleAnyway Outcome = "schedule-anyway"
	ByFallback       Outcome = "fallback"
	ByRolloutRelief  Outcome = "rollout-relief"
)

// Outcome returns the reason for a placement on node under this plan. inPool is as in Admit.
func (p *Plan) Outcome(node Node, inPool int) Outcome {
	switch {
	case node.Capacity.Type == OnDemand && !p.BeyondFloor():
		return OnFloor
	case node.Capacity.Type == OnDemand:
		return Overflow
	case p.Exempt && (p.Floor > 0 || p.requireOnDemand):
		return ByExemption
	case p.WithinBudget(0) && !p.poolFull(node, inPool):
		return InBudget
	}
	return p.Grant.Outcome()
}
