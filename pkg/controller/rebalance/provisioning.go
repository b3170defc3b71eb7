package rebalance

import (
	"maps"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// In the autoscaler mode, package gating assigns each new pod a capacity type, which the pod then
// requires. The type is on-demand while fewer live pods of the revision than the floor require
// on-demand. A released pod does not count. So the planner can predict the requirement of a
// replacement, and an autoscaler provisions a node for it.

// onDemandRequirement returns the requirement of the replacement of a pod that should run on
// on-demand: decision.AssignedOnDemand, or decision.Unassigned if it will not require on-demand.
func (r *round) onDemandRequirement(p *snapshot.Pod) decision.AssignedCapacity {
	w := p.Workload
	switch {
	case !r.gating || w.Settings.WhenUnsatisfiable == decision.ScheduleAnyway || p.Subject.Pod.OnlySpot:
		return decision.Unassigned
	case inFloor(p), !p.Subject.Pod.Workload.Ordered && otherAssigned(p) < w.Floor:
		return decision.AssignedOnDemand
	}
	return decision.Unassigned
}

// spotRequirement returns the requirement of the replacement of a pod that returns to spot:
// decision.AssignedSpot or decision.Unassigned.
func (r *round) spotRequirement(p *snapshot.Pod) decision.AssignedCapacity {
	preferred := p.Workload.Settings.WhenUnsatisfiable == decision.ScheduleAnyway && p.Workload.Floor > 0
	if r.gating && r.settings.Gating.ProvisionsForReturn() && !preferred && r.surges(p) {
		return decision.AssignedSpot
	}
	return decision.Unassigned
}

// mayBecomeSpot reports whether the replacement of a pod beyond the floor will not require
// on-demand.
func (r *round) mayBecomeSpot(p *snapshot.Pod) bool {
	pod := &p.Subject.Pod
	switch {
	case !r.gating:
		return !pod.OnlyOnDemand // an assignment may remain from the autoscaler mode, and Room finds no spot node for it
	case pod.OnlyOnDemand && workload.AssignedCapacityOf(p.Pod) != decision.AssignedOnDemand:
		return false // the user's affinity, which the replacement has too
	}
	return r.onDemandRequirement(p) == decision.Unassigned
}

// provisionable reports whether an autoscaler provisions a node for the replacement of a pod. why
// is the reason for which Room found no existing node. A pod that was not examined may fit on an
// existing node.
func (r *round) provisionable(p *snapshot.Pod, requires decision.AssignedCapacity, why string) bool {
	return requires != decision.Unassigned && why != "" && why != simulation.NotExamined && !simulation.Excessive(p) && r.surges(p) &&
		r.feasibility.FitsNewNode(p, requires)
}

// spotProvisionable reports whether an autoscaler provisions a spot node for a pod that fits on no
// existing node.
func (r *round) spotProvisionable(p *snapshot.Pod) bool {
	requires := r.spotRequirement(p)
	to, why := r.room.Replace(p, requires)
	return to == nil && !capped(p) && r.provisionable(p, requires, why)
}

// capped reports whether a spot pool has as many replicas of the pod's revision as maxPerPool
// permits. An autoscaler does not know the cap. If the pool has room, it provisions nothing, and
// the replacement waits until it may exceed the cap.
func capped(p *snapshot.Pod) bool {
	plan := decision.NewPlan(&p.Subject.Pod, p.Workload.Settings, decision.PlacedPods{}, decision.WaitTime{})
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

// calmSince returns the earliest time since which a spot pool has been calm, because the autoscaler
// chooses the pool. If there is no pool, it returns the time of the first round or of the last
// disruption: the last pool may have been lost just before.
func (r *round) calmSince() time.Time {
	if pools := r.poolsCalmSince(); len(pools) > 0 {
		return slices.MinFunc(slices.Collect(maps.Values(pools)), time.Time.Compare)
	}
	disruptions := slices.Collect(maps.Values(r.Disrupted))
	return slices.MaxFunc(append(disruptions, r.firstRound), time.Time.Compare)
}

// otherAssigned counts the other live pods of the pod's revision that are assigned to the floor, as
// package gating does.
func otherAssigned(p *snapshot.Pod) int {
	n := 0
	for _, other := range p.Revision.Pods {
		if other != p && other.Subject.Pod.AssignedToFloor(other.Node != nil && other.Node.Facts.Capacity.IsSpot()) {
			n++
		}
	}
	return n
}
