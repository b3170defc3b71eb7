package rebalance

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// In the autoscaler mode a replacement is assigned the capacity type that it requires when it is made: on-demand, while fewer live pods of its
// revision than the floor require that (package gating). A released pod is not one of them. So a replacement can be foretold, and an autoscaler
// buys a node for it.

// requiresOnDemand returns what the replacement of a pod that belongs on on-demand will require; decision.Unassigned if it will not require
// on-demand.
func (r *round) requiresOnDemand(p *cluster.Pod) decision.Assignment {
	w := p.Workload
	switch {
	case !r.gating || w.Settings.WhenUnsatisfiable == decision.ScheduleAnyway || onlySpot(p):
		return decision.Unassigned
	case belowFloor(p), !p.Subject.Pod.Workload.Ordered && assignedBeside(p) < w.Floor:
		return decision.AssignedOnDemand
	}
	return decision.Unassigned
}

// requiresSpot returns what the replacement of a pod that returns to spot will require: decision.AssignedSpot, or decision.Unassigned.
func (r *round) requiresSpot(p *cluster.Pod) decision.Assignment {
	preferred := p.Workload.Settings.WhenUnsatisfiable == decision.ScheduleAnyway && p.Workload.Floor > 0
	if r.gating && r.settings.BuyForReturn && !preferred && r.surges()(p) {
		return decision.AssignedSpot
	}
	return decision.Unassigned
}

// mayBecomeSpot reports whether the replacement of a pod on on-demand beyond the floor will not require on-demand itself.
func (r *round) mayBecomeSpot(p *cluster.Pod) bool {
	pod := &p.Subject.Pod
	switch {
	case !r.gating:
		return !pod.OnlyOnDemand // else it may be left from the mode, and Room knows of no spot for it
	case pod.OnlyOnDemand && kube.AssignmentOf(p.Pod) != decision.AssignedOnDemand:
		return false // its user's own affinity, which the replacement has too
	}
	return r.requiresOnDemand(p) == decision.Unassigned
}

// buyable reports whether an autoscaler buys a node for the replacement of a pod, which requires that. why is what Room says of nodes that exist. A
// pod that was not examined may have room there.
func (r *round) buyable(p *cluster.Pod, requires decision.Assignment, why string) bool {
	return requires != decision.Unassigned && why != "" && why != cluster.NotExamined && !p.Excessive() && r.surges()(p)
}

// spotBuyable reports whether an autoscaler buys spot for a pod, of which no node that exists has room.
func (r *round) spotBuyable(p *cluster.Pod) bool {
	requires := r.requiresSpot(p)
	to, why := r.room.Replace(p, requires)
	return to == nil && !capped(p) && r.buyable(p, requires, why)
}

// capped reports whether some spot pool holds as many replicas of the pod's revision as maxPerPool allows. An autoscaler does not see the cap: if
// the pool has room it buys nothing, and the replacement would wait until it may exceed the cap.
func capped(p *cluster.Pod) bool {
	plan := decision.NewPlan(&p.Subject.Pod, p.Workload.Settings, decision.Placed{}, decision.Waiting{})
	if plan.PoolCap == 0 {
		return false
	}
	inPool := map[decision.Pool]int{}
	for _, sibling := range p.Revision.Pods {
		node := sibling.Node
		if node == nil || node.Facts.Capacity.Type != decision.Spot || node.Facts.Pool == (decision.Pool{}) {
			continue
		}
		if inPool[node.Facts.Pool]++; inPool[node.Facts.Pool] >= plan.PoolCap {
			return true
		}
	}
	return false
}

// calmest returns since when some spot pool has been calm: an autoscaler chooses the pool that it buys from. Without any pool it is since the first
// round, because the last pool may have been lost just before.
func (r *round) calmest() time.Time {
	var since time.Time
	for _, at := range r.pools() {
		since = kube.Earlier(since, at)
	}
	if since.IsZero() {
		since = r.since
		for _, at := range r.unrest {
			if at.After(since) {
				since = at
			}
		}
	}
	return since
}

// assignedBeside counts the other live pods of the pod's revision that require on-demand, as package gating does.
func assignedBeside(p *cluster.Pod) int {
	n := 0
	for _, other := range p.Revision.Pods {
		if other != p && other.Subject.Pod.OnlyOnDemand {
			n++
		}
	}
	return n
}
