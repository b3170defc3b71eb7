package rebalance

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// returnToSpot moves replicas beyond the floor from on-demand to calm spot with room. While a pool
// has been calm for less than two calm periods, a workload moves at most one replica to it per calm
// period. So misplaced trust in a pool costs one replica. Such a move only saves cost, so a pod
// that would lose local data stays. Moves to existing nodes are planned before moves for which an
// autoscaler has to provision a node.
func (r *round) returnToSpot() {
	if pools := r.poolsCalmSince(); len(pools) > 0 {
		r.returnAll(func(p *snapshot.Pod) (*snapshot.Node, time.Time, Obstacle) {
			to, o := r.spotFor(p, pools, false)
			if to == nil {
				return nil, time.Time{}, o
			}
			return to, pools[to.Facts.Pool], Obstacle{}
		})
	}
	if r.gating && r.settings.Gating.ProvisionsForReturn() {
		since := r.calmSince()
		r.returnAll(func(p *snapshot.Pod) (*snapshot.Node, time.Time, Obstacle) {
			if !r.spotProvisionable(p) {
				return nil, since, noRoom("no existing spot node, and no known node that an autoscaler adds, would run it")
			}
			return nil, since, r.untilTrusted(p, since, false)
		})
	}
}

// returnAll moves one replica of each workload beyond its floor to spot. place returns the new node
// and since when its pool has been calm, or the obstacle if the replica stays.
func (r *round) returnAll(place func(*snapshot.Pod) (to *snapshot.Node, since time.Time, o Obstacle)) {
	for _, w := range r.snapshot.Workloads {
		if r.limitReached() {
			return
		}
		guard(w, func() { r.returnOne(w, place) })
	}
}

func (r *round) returnOne(w *snapshot.Workload, place func(*snapshot.Pod) (*snapshot.Node, time.Time, Obstacle)) {
	if w.FloorStatus().Surplus == 0 {
		return
	}
	o := r.obstacle(w, migration.ReturnToSpot, false)
	if o.Cause != "" {
		r.note(w, migration.ReturnToSpot, o)
		return
	}
	beyondFloor := r.candidates(w.Revisions, decision.OnDemand, func(p *snapshot.Pod) bool { return r.staysOnOnDemand(p) == "" })
	if len(beyondFloor) > 0 && r.isLimited(beyondFloor[0], migration.ReturnToSpot) {
		return
	}
	for _, p := range beyondFloor {
		to, since, stays := place(p)
		if o = stays; o.Cause == "" {
			r.addMoveToSpot(p, migration.ReturnToSpot, to, since)
			return
		}
	}
	if r.obstacles != nil && len(beyondFloor) == 0 {
		o = r.noCandidate(w, decision.OnDemand, r.staysOnOnDemand)
	}
	r.note(w, migration.ReturnToSpot, o)
}

// poolsCalmSince returns for each usable spot pool since when it has been calm: since its last
// disruption, or since its oldest node was created.
func (r *round) poolsCalmSince() map[decision.Pool]time.Time {
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
		if at, ok := r.Disrupted[pool]; ok && at.After(since) {
			pools[pool] = at
		}
	}
	return pools
}

// spotFor returns the node on which the replacement would be placed if that is a spot node without
// an interruption signal in a trusted pool; else nil. Unless another pod needs the room of p, the
// replacement preempts only placeholders. If it returns nil, it returns the obstacle too.
func (r *round) spotFor(p *snapshot.Pod, pools map[decision.Pool]time.Time, needed bool) (*snapshot.Node, Obstacle) {
	to, why := r.room.Replace(p, r.spotRequirement(p))
	if to == nil {
		return nil, noRoom(why)
	}
	if why == simulation.AfterPreemption && !needed || to.Facts.Capacity.Type != decision.Spot || to.Facts.Signal != decision.NoSignal {
		return nil, noRoom("no spot node without an interruption signal has room for it")
	}
	if o := r.untilTrusted(p, pools[to.Facts.Pool], needed); o.Cause != "" {
		if r.obstacles != nil {
			o.Detail = to.Facts.Pool.InstanceType + "/" + to.Facts.Pool.Zone
		}
		return nil, o
	}
	return to, Obstacle{}
}

// untilTrusted returns the obstacle to a move of a pod to spot that has been calm since then. If
// another pod needs the room, a pool that is not calm is trusted with one replica of a workload per
// calm period.
func (r *round) untilTrusted(p *snapshot.Pod, since time.Time, needed bool) Obstacle {
	period := r.settings.Rebalance.CalmPeriod.Duration
	calm := since.Add(period)
	if r.now.Before(calm) && !needed {
		return Obstacle{Cause: NotCalm, Until: calm}
	}
	a := r.attempts[keyOf(p.Workload)]
	if !r.now.Before(calm.Add(period)) || !r.hadEarlyMove(p.Workload) || a != nil && a.pod == p.UID {
		return Obstacle{}
	}
	return Obstacle{Cause: OnePerPeriod, Until: node.Earlier(calm.Add(period), r.EarlyMoves[keyOf(p.Workload)].Add(period))}
}

// hadEarlyMove reports whether the workload has used its move to a pool that had not been calm for
// two calm periods.
func (r *round) hadEarlyMove(w *snapshot.Workload) bool {
	last, moved := r.EarlyMoves[keyOf(w)]
	return moved && r.now.Sub(last) < r.settings.Rebalance.CalmPeriod.Duration
}

// addMoveToSpot adds a move to a node that spotFor returned, or to a node that has to be
// provisioned if to is nil. since is the time since which that spot has been calm.
func (r *round) addMoveToSpot(p *snapshot.Pod, reason migration.Reason, to *snapshot.Node, since time.Time) {
	if r.now.Sub(since) < 2*r.settings.Rebalance.CalmPeriod.Duration && !r.hadEarlyMove(p.Workload) {
		r.EarlyMoves[keyOf(p.Workload)] = r.now
	}
	requires := decision.Unassigned
	if reason == migration.ReturnToSpot { // make room uses only existing nodes
		requires = r.spotRequirement(p)
	}
	r.addMove(p, reason, requires, to)
}
