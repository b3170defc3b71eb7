package rebalance

import (
	"cmp"
	"slices"

	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// heal moves pods that stand on spot against the policy to on-demand that has room, those of the workloads first that lack most. It waits for
// no calm: on-demand is where nothing is reclaimed. A rollout is left to itself unless it is paused: what it lacks, its end may bring.
func (r *round) heal() {
	r.toOnDemand(migration.Heal, r.healable, r.ill)
}

// toOnDemand moves a pod of each workload to on-demand, those of the workloads first that lack most by lacks. pods returns the pods of a workload
// in the order in which they are tried. What can be placed on nodes that exist comes before what an autoscaler has to buy for.
func (r *round) toOnDemand(reason migration.Reason, lacks func(*cluster.Workload) int, pods func(*cluster.Workload) []*cluster.Pod) {
	type patient struct {
		*cluster.Workload
		lacks int
	}
	var patients []patient
	for _, w := range r.snapshot.Workloads {
		if lacks := lacks(w); lacks > 0 {
			patients = append(patients, patient{w, lacks})
		}
	}
	slices.SortStableFunc(patients, func(a, b patient) int { return cmp.Compare(b.lacks, a.lacks) })
	for _, buy := range []bool{false, true} {
		for _, w := range patients {
			if r.full() {
				return
			}
			r.oneToOnDemand(w.Workload, reason, pods, buy)
		}
	}
}

// healable returns how many pods of a workload belong on on-demand if it may be healed now, else 0.
func (r *round) healable(w *cluster.Workload) (lacks int) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if w.RollingOut && !halted(w) || !r.free(w, r.stuck(w)) {
		return 0
	}
	return deficit(w)
}

// oneToOnDemand moves a pod of a workload to on-demand if that has room, or with buy if an autoscaler can buy it.
func (r *round) oneToOnDemand(w *cluster.Workload, reason migration.Reason, pods func(*cluster.Workload) []*cluster.Pod, buy bool) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if r.moved[w.Key] || buy && !r.gating {
		return
	}
	for _, p := range pods(w) {
		requires := r.requiresOnDemand(p)
		to, why := r.room.Replace(p, requires)
		if to != nil && to.Facts.Capacity.Type == decision.OnDemand || buy && to == nil && r.buyable(p, requires, why) {
			r.begin(p, reason, requires, to)
			return
		}
	}
}

// deficit returns how many pods of a workload on spot belong on on-demand and could run there.
func deficit(w *cluster.Workload) int { return w.Standing().Heals }

// overBudget returns how many pods of a revision are on spot and should not be.
func overBudget(revision *cluster.Revision) int { return revision.Standing().OverBudget }

// ill returns the pods of a workload whose move to on-demand would help, in the order in which they are tried: of a revision that is over
// its budget, else of the newest. Pods of one revision are alike to the room but for what is bound to a place, so of those that are counted
// one a revision is tried.
func (r *round) ill(w *cluster.Workload) (pods []*cluster.Pod) {
	revisions := slices.Clone(w.Revisions)
	slices.Reverse(revisions)
	slices.SortStableFunc(revisions, func(a, b *cluster.Revision) int {
		return cmp.Compare(overBudget(b), overBudget(a))
	})
	short := w.Standing().FloorDeficit > 0
	for _, revision := range revisions {
		if !short && overBudget(revision) == 0 {
			continue
		}
		for _, p := range r.candidates(revision, decision.Spot) {
			if onlySpot(p) || w.StatefulSet != nil && !belowFloor(p) {
				continue
			}
			pods = append(pods, p)
			if w.StatefulSet == nil {
				break
			}
		}
	}
	return pods
}
