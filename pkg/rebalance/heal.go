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
	type patient struct {
		*cluster.Workload
		lacks int
	}
	var patients []patient
	for _, w := range r.snapshot.Workloads {
		if lacks := r.healable(w); lacks > 0 {
			patients = append(patients, patient{w, lacks})
		}
	}
	slices.SortStableFunc(patients, func(a, b patient) int { return cmp.Compare(b.lacks, a.lacks) })
	for _, w := range patients {
		if r.full() {
			return
		}
		r.healOne(w.Workload)
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

// healOne moves a pod of a workload to on-demand if that has room.
func (r *round) healOne(w *cluster.Workload) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	for _, p := range r.ill(w) {
		if to, _ := r.room.Replace(p, decision.Unassigned); to != nil && to.Facts.Capacity.Type == decision.OnDemand {
			r.begin(p, migration.Heal, to)
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
