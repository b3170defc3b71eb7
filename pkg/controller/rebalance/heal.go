package rebalance

import (
	"cmp"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// toOnDemand moves one pod of each workload to on-demand. deficitOf returns a workload's deficit;
// the largest deficit is first. candidates returns the pods of a workload in the order in which the
// planner tries them. Moves to existing nodes are planned before moves for which an autoscaler has
// to provision a node.
func (r *round) toOnDemand(reason migration.Reason, deficitOf func(*snapshot.Workload) int,
	candidates func(*snapshot.Workload) []*snapshot.Pod) {
	var workloads []*snapshot.Workload
	deficits := map[*snapshot.Workload]int{}
	for _, w := range r.snapshot.Workloads {
		guard(w, func() {
			if pods := deficitOf(w); pods > 0 {
				workloads, deficits[w] = append(workloads, w), pods
			}
		})
	}
	slices.SortStableFunc(workloads, func(a, b *snapshot.Workload) int { return cmp.Compare(deficits[b], deficits[a]) })
	for _, provision := range []bool{false, true} {
		for _, w := range workloads {
			if r.limitReached() {
				return
			}
			guard(w, func() { r.oneToOnDemand(w, reason, candidates, provision) })
		}
	}
}

// podsToHeal returns the number of pods of a workload that should run on on-demand, or 0 if the
// workload may not be healed now. Heal does not wait for a calm period, because on-demand nodes are
// not reclaimed. It skips workloads during a rollout unless the rollout is paused: the end of the
// rollout may remove the deficit. It waits for the labels of nodes on which another scheduler has
// placed pods: they may be on-demand.
func (r *round) podsToHeal(w *snapshot.Workload) (pods int) {
	if pods = w.FloorStatus().Healable; pods == 0 {
		return 0
	}
	o := r.obstacle(w, migration.Heal, r.unavailableTooLong(w))
	if o.Cause == "" && w.KeepsScheduler && anyPod(w, func(p *snapshot.Pod) bool {
		return p.Node != nil && p.Node.Facts.Capacity.Source == decision.Settling
	}) {
		o = Obstacle{Cause: Unlabeled}
	}
	if o.Cause != "" {
		r.note(w, migration.Heal, o)
		return 0
	}
	return pods
}

// oneToOnDemand moves a pod of a workload to on-demand if an existing node has room. With
// provision, it moves a pod for which an autoscaler can provision a node.
func (r *round) oneToOnDemand(w *snapshot.Workload, reason migration.Reason, candidates func(*snapshot.Workload) []*snapshot.Pod,
	provision bool) {
	if r.moved[unitOf(w)] || provision && !r.gating {
		return
	}
	pods, o := candidates(w), Obstacle{}
	if len(pods) > 0 && r.isLimited(pods[0], reason) {
		return
	}
	for _, p := range pods {
		requires := r.onDemandRequirement(p)
		to, why := r.room.Replace(p, requires)
		if reason == migration.Assign && why == simulation.AfterPreemption {
			continue // nothing is wrong with p yet, so no other pod has to end for it
		}
		if to != nil && to.Facts.Capacity.Type == decision.OnDemand || provision && to == nil && r.provisionable(p, requires, why) {
			r.addMove(p, reason, requires, to)
			return
		}
		if o = noRoom(why); o.Cause == NoRoom { // why is about all nodes
			o.Detail = "no on-demand node that it may use has room"
		}
	}
	if r.obstacles != nil && len(pods) == 0 {
		o = r.noCandidate(w, decision.Spot, func(*snapshot.Pod) Cause { return "" })
	}
	r.note(w, reason, o)
}

// healCandidates returns the candidates of a workload whose move to on-demand reduces the deficit.
// Pods of a revision over its budget are first, then pods of the newest revision.
func (r *round) healCandidates(w *snapshot.Workload) []*snapshot.Pod {
	revisions := slices.Clone(w.Revisions)
	slices.Reverse(revisions)
	slices.SortStableFunc(revisions, func(a, b *snapshot.Revision) int {
		return cmp.Compare(b.FloorStatus().OverBudget, a.FloorStatus().OverBudget)
	})
	if w.FloorStatus().FloorDeficit == 0 {
		revisions = slices.DeleteFunc(revisions, func(revision *snapshot.Revision) bool { return revision.FloorStatus().OverBudget == 0 })
	}
	return r.candidates(revisions, decision.Spot, func(p *snapshot.Pod) bool {
		return !p.Subject.Pod.OnlySpot && (w.StatefulSet == nil || inFloor(p))
	})
}
