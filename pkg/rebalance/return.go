package rebalance

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
)

// returnToSpot moves replicas beyond the floor from on-demand to calm spot that has room. While a pool has been calm for less than two calm
// periods, a workload moves to it only once a calm period: what was wrong to trust it costs one replica.
func (r *round) returnToSpot() {
	pools := r.pools()
	if len(pools) == 0 {
		return
	}
	for _, w := range r.snapshot.Workloads {
		if r.full() {
			return
		}
		if surplus(w) == 0 || w.RollingOut || !r.free(w, false) {
			continue
		}
		if p := r.beyondFloor(w); p != nil && r.toSpotWith(p, pools, false) {
			r.begin(p, migration.ReturnToSpot)
		}
	}
}

// surplus returns how many replicas of a workload stand on on-demand beyond its floor.
func surplus(w *cluster.Workload) int {
	if w.StatefulSet == nil {
		have, _ := onDemand(w)
		return max(0, have-w.Floor)
	}
	n := 0
	for _, revision := range w.Revisions {
		for _, p := range revision.Pods {
			if on(p, decision.OnDemand) && !belowFloor(p) {
				n++
			}
		}
	}
	return n
}

// beyondFloor returns the pod on on-demand that a workload with a surplus can do without there best; nil if none may be moved.
func (r *round) beyondFloor(w *cluster.Workload) *cluster.Pod {
	for _, revision := range w.Revisions {
		for _, p := range r.candidates(revision, decision.OnDemand) {
			if !belowFloor(p) {
				return p
			}
		}
	}
	return nil
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

// toSpotWith reports whether the pod would be placed on spot, on a node that nothing is said against, in a pool to be trusted. A restless pool is
// trusted with one replica of a workload a calm period where the need of another pod speaks for it.
func (r *round) toSpotWith(p *cluster.Pod, pools map[decision.Pool]time.Time, needed bool) bool {
	to, _ := r.room.Replace(p)
	if to == nil || to.Facts.Capacity.Type != decision.Spot || to.Facts.Signal != decision.NoSignal {
		return false
	}
	calm := r.now.Sub(pools[to.Facts.Pool])
	if calm >= 2*r.settings.Calm {
		return true
	}
	if calm < r.settings.Calm && !needed {
		return false
	}
	uid := p.Workload.UID
	last, moved := r.toSpot[uid]
	if a := r.attempts[uid]; moved && r.now.Sub(last) < r.settings.Calm && (a == nil || a.pod != p.UID) {
		return false
	}
	if !moved || r.now.Sub(last) >= r.settings.Calm {
		r.toSpot[uid] = r.now
	}
	return true
}
