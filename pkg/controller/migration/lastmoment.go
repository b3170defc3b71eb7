package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// requestsPerDeletion is 2: one for the condition DisruptionTarget and one for the deletion.
const requestsPerDeletion = 2

// shortestGrace is the grace period of a pod that is deleted at its deadline. With a grace period
// of 0 the API server would remove the pod object before its containers have ended.
const shortestGrace = time.Second

// lastMomentReached reports whether the pod has no more time for an eviction. While deletions are
// paused, evictions continue.
func (p *planner) lastMomentReached(o *observation) bool {
	at := p.lastMoment(o)
	return !at.IsZero() && !p.now.Before(at) && !p.settings.Paused.Stops(safety.Deadline)
}

// deletion returns the action of a pod at its last moment: its deletion, or its eviction if
// Settings.Interruption.DeleteAtDeadline is false.
func (p *planner) deletion(o *observation) Action {
	if !p.settings.Interruption.DeleteAtDeadline {
		return o.action(EvictPod, Evict, "its node is about to be reclaimed")
	}
	a := o.action(DeletePod, Delete, "its node is about to be reclaimed, and no time is left for an eviction")
	if o.Unreachable {
		return a // with its own grace period, in case the kubelet returns
	}
	grace := max(min(o.grace, o.Deadline.Sub(p.now)).Truncate(time.Second), shortestGrace)
	a.Grace = &grace
	return a
}

// lastMoment returns when the controller deletes the pod if it is still on its node; zero without a
// deadline and for an unconfirmed move.
func (p *planner) lastMoment(o *observation) time.Time {
	if o.spread {
		return node.Earlier(o.latest, p.spreadMoment(o))
	}
	return o.latest
}

// leastShareBeforeDeletion is the smallest share of the notice before the deletion of all replicas
// with their full grace period. Below it, grace periods are shortened instead. It is small, because
// the owner of a workload set the grace period, and replacements may start while replicas end.
const leastShareBeforeDeletion = 0.1

// isSpread reports whether the deletions of the replicas of the pod's workload are spread over the
// notice. The grace period of such a pod takes more than nine tenths of the notice of its node, so
// all replicas would be deleted before a replacement is ready. The deletion of a pod that no
// controller recreates is not spread: it gets the longest possible grace period.
func (o *observation) isSpread() bool {
	notice := o.Deadline.Sub(o.began())
	beforeDeletion := notice - o.grace
	return !o.Unconfirmed && notice > 0 && beforeDeletion.Seconds() < leastShareBeforeDeletion*notice.Seconds() &&
		(o.Pod.ReleasedFrom != nil || o.Pod.Workload != nil && o.recreated)
}

// spreadMoment returns when the notice allows the deletion of a pod against its
// PodDisruptionBudget. The first half of the notice, or SurgeTimeout if that is shorter, is
// reserved for replacements. A pod that is replaced in time gets the rest as its grace period.
// After k/n of the rest, k of n replicas may be missing, so the last replica is deleted at the
// deadline. A single replica is deleted after half of the rest.
func (p *planner) spreadMoment(o *observation) time.Time {
	notice := o.Deadline.Sub(o.began())
	reserved := min(notice/2, p.settings.Migration.SurgeTimeout.Duration)
	rest := notice - reserved
	return o.began().Add(reserved + rest/time.Duration(max(o.replicas(), 2))*time.Duration(max(o.missingWithout(), 1)))
}

// assignLastMoments assigns the latest deletion of every pod with a deadline. It is the deadline
// less the grace period. For a pod whose deletion is spread it is the deadline less shortestGrace,
// at most. If the client needs more than a second for all deletions, some start earlier, in whole
// seconds: the client sends the requests of one second at once.
func (p *planner) assignLastMoments(observed []*observation) {
	var all []*observation
	for _, o := range observed {
		if o.Deadline.IsZero() || o.Unconfirmed {
			continue
		}
		o.latest = o.Deadline.Add(-o.grace)
		if o.leaving() {
			continue
		}
		if o.spread {
			o.latest = o.Deadline.Add(-shortestGrace)
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *observation) int { // the latest first
		return cmp.Or(b.latest.Compare(a.latest), snapshot.ByName(b.Pod.Pod, a.Pod.Pod))
	})
	// Each deletion gets a second, from the last one backwards. second is the start of the second
	// that was assigned last, and used is the number of deletions in it.
	var second time.Time
	perSecond, used := p.settings.RequestsPerSecond/requestsPerDeletion, 0
	for _, o := range all {
		switch {
		case p.settings.RequestsPerSecond == 0:
			second = o.latest // no limit
		case used == 0 || !o.latest.After(second.Add(-time.Second)):
			second, used = o.latest, 0
		case used >= perSecond:
			second, used = second.Add(-time.Second), 0
		}
		used++
		o.latest = node.Earlier(o.latest, second)
	}
}

// NextLastMoment returns the first time after now at which a pod must be deleted if it is still on
// its node, so that Plan returns a new action; zero if none exists.
func NextLastMoment(s *snapshot.Snapshot, moves []Move, settings Settings) (next time.Time) {
	if len(moves) == 0 { // a deadline belongs to a requested move
		return next
	}
	p := newPlanner(s, settings, nil)
	for _, o := range p.observe(moves) {
		if at := p.lastMoment(o); at.After(p.now) {
			next = node.Earlier(next, at)
		}
	}
	return next
}
