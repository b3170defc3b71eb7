package rebalance

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// returnToSpot moves replicas beyond the floor from on-demand to calm spot that has room. While a pool has been calm for less than two calm
// periods, a workload moves to it only once a calm period: what was wrong to trust it costs one replica. Such a move only saves money, so a pod
// that would lose data on its node is left alone. What can be placed on nodes that exist comes before what an autoscaler has to buy for.
func (r *round) returnToSpot() {
	if pools := r.pools(); len(pools) > 0 {
		r.returnAll(func(p *cluster.Pod) (*cluster.Node, time.Time, bool) {
			to := r.spotFor(p, pools, false)
			if to == nil {
				return nil, time.Time{}, false
			}
			return to, pools[to.Facts.Pool], true
		})
	}
	if r.gating && r.settings.BuyForReturn {
		since := r.calmest()
		r.returnAll(func(p *cluster.Pod) (*cluster.Node, time.Time, bool) {
			return nil, since, r.spotBuyable(p) && r.trusts(p, since, false)
		})
	}
}

// returnAll moves a replica of each workload beyond its floor to spot. place returns where it goes and since when that spot has been calm; false
// if it stays.
func (r *round) returnAll(place func(*cluster.Pod) (to *cluster.Node, since time.Time, ok bool)) {
	for _, w := range r.snapshot.Workloads {
		if r.full() {
			return
		}
		r.returnOne(w, place)
	}
}

func (r *round) returnOne(w *cluster.Workload, place func(*cluster.Pod) (*cluster.Node, time.Time, bool)) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if surplus(w) == 0 || w.RollingOut || !r.free(w, false) {
		return
	}
	for _, p := range r.beyondFloor(w) {
		if to, since, ok := place(p); ok {
			r.beginToSpot(p, migration.ReturnToSpot, to, since)
			return
		}
	}
}

// surplus returns how many replicas of a workload are on on-demand beyond its floor.
func surplus(w *cluster.Workload) int { return w.Standing().Surplus }

// beyondFloor returns the pods on on-demand that a workload with a surplus can do without there, in the order in which they are tried; as in ill,
// of those that are counted one a revision.
func (r *round) beyondFloor(w *cluster.Workload) (pods []*cluster.Pod) {
	for _, revision := range w.Revisions {
		for _, p := range r.candidates(revision, decision.OnDemand) {
			if belowFloor(p) || !spared(p) || !r.mayBecomeSpot(p) || !r.settings.MoveLocalStorage && kube.LosesLocalData(p.Pod) {
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

// pools returns since when each spot pool that can be moved to has been without unrest: since the last, or since its oldest node was made.
func (r *round) pools() map[decision.Pool]time.Time {
	pools := map[decision.Pool]time.Time{}
	for _, n := range r.snapshot.Nodes {
		if n.Facts.Capacity.Type != decision.Spot || n.Facts.Signal >= decision.Drain {
			continue
		}
		if since, ok := pools[n.Facts.Pool]; !ok || n.CreationTimestamp.Time.Before(since) {
			pools[n.Facts.Pool] = n.CreationTimestamp.Time
		}
	}
	for pool, since := range pools {
		if at, ok := r.unrest[pool]; ok && at.After(since) {
			pools[pool] = at
		}
	}
	return pools
}

// spotFor returns where the pod would be placed if that is on spot, on a node that nothing is said against, in a pool to be trusted; else nil.
func (r *round) spotFor(p *cluster.Pod, pools map[decision.Pool]time.Time, needed bool) *cluster.Node {
	to, _ := r.room.Replace(p, r.requiresSpot(p))
	if to == nil || to.Facts.Capacity.Type != decision.Spot || to.Facts.Signal != decision.NoSignal || !r.trusts(p, pools[to.Facts.Pool], needed) {
		return nil
	}
	return to
}

// trusts reports whether a pod may be moved to spot that has been calm since then. Restless spot is trusted with one replica of a workload a calm
// period if another pod needs the room.
func (r *round) trusts(p *cluster.Pod, since time.Time, needed bool) bool {
	calm := r.now.Sub(since)
	if calm >= 2*r.settings.Calm {
		return true
	}
	if calm < r.settings.Calm && !needed {
		return false
	}
	a := r.attempts[p.Workload.Key]
	return !r.trusted(p.Workload) || a != nil && a.pod == p.UID
}

// trusted reports whether the workload has had its move to a pool that had not been calm for long.
func (r *round) trusted(w *cluster.Workload) bool {
	last, moved := r.toSpot[w.Key]
	return moved && r.now.Sub(last) < r.settings.Calm
}

// beginToSpot adds a move to a node that spotFor has returned; nil: to one that has to be bought. since is since when that spot has been calm.
func (r *round) beginToSpot(p *cluster.Pod, reason migration.Reason, to *cluster.Node, since time.Time) {
	if r.now.Sub(since) < 2*r.settings.Calm && !r.trusted(p.Workload) {
		r.toSpot[p.Workload.Key] = r.now
	}
	requires := decision.Unassigned
	if reason == migration.ReturnToSpot { // make room takes only what there is
		requires = r.requiresSpot(p)
	}
	r.begin(p, reason, requires, to)
}
