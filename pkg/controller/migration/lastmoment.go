package migration

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// requestsPerDeletion is 2: one for the condition DisruptionTarget and one for the deletion.
const requestsPerDeletion = 2

// shortestGrace is the grace period of a pod that is deleted at its deadline. With a grace period
// of 0 the API server would remove the pod object before its containers have ended.
const shortestGrace = time.Second

// lastMomentReached reports whether the pod has no more time for an eviction.
func (p *planner) lastMomentReached(m Move) bool {
	return !m.Deadline.IsZero() && !p.now.Before(p.lastMoment(m))
}

// deletion returns the action of a pod at its last moment: its deletion, or its eviction if
// Settings.DeleteAtDeadline is false.
func (p *planner) deletion(m Move) Action {
	if !p.settings.DeleteAtDeadline {
		return m.action(EvictPod, Evict, "its node is about to be reclaimed")
	}
	a := m.action(DeletePod, Delete, "its node is about to be reclaimed, and no time is left for an eviction")
	grace := max(min(gracePeriod(m.Pod), m.Deadline.Sub(p.now)).Truncate(time.Second), shortestGrace)
	a.Grace = &grace
	return a
}

// lastMoment returns when the controller deletes the pod of a move with a deadline, if it is still
// on its node.
func (p *planner) lastMoment(m Move) time.Time {
	last, ok := p.lastMoments[m.Pod.UID]
	if !ok {
		last = m.Deadline.Add(-gracePeriod(m.Pod))
	}
	if p.isSpread(m) {
		return node.Earlier(last, p.spreadMoment(m))
	}
	return last
}

// leastShareBeforeDeletion is the smallest share of the notice before the deletion of all replicas
// with their full grace period. Below it, grace periods are shortened instead. It is small, because
// the owner of a workload set the grace period, and replacements may start while replicas end.
const leastShareBeforeDeletion = 0.1

// isSpread reports whether the deletions of the replicas of the pod's workload are spread over the
// notice. The grace period of such a pod takes more than nine tenths of the notice of its node, so
// all replicas would be deleted before a replacement is ready. The deletion of a pod that no
// controller recreates is not spread: it gets the longest possible grace period.
func (p *planner) isSpread(m Move) bool {
	notice := m.Deadline.Sub(m.Noticed)
	beforeDeletion := notice - gracePeriod(m.Pod)
	return notice > 0 && beforeDeletion.Seconds() < leastShareBeforeDeletion*notice.Seconds() &&
		(m.Pod.ReleasedFrom != nil || m.Pod.Workload != nil && p.recreated(m.Pod))
}

// spreadMoment returns when the notice allows the deletion of a pod against its
// PodDisruptionBudget. The first half of the notice, or SurgeTimeout if that is shorter, is
// reserved for replacements. A pod that is replaced in time gets the rest as its grace period.
// After k/n of the rest, k of n replicas may be missing, so the last replica is deleted at the
// deadline. A single replica is deleted after half of the rest.
func (p *planner) spreadMoment(m Move) time.Time {
	missing, replicas := p.missingWithout(m.Pod)
	notice := m.Deadline.Sub(m.Noticed)
	reserved := min(notice/2, p.settings.SurgeTimeout)
	rest := notice - reserved
	return m.Noticed.Add(reserved + rest/time.Duration(max(replicas, 2))*time.Duration(max(missing, 1)))
}

// assignLastMoments returns the last moment of every pod with a deadline. It is the deadline less
// the grace period. For a pod whose deletion is spread it is the deadline less shortestGrace, at
// most. If the client needs more than a second for all deletions, some start earlier, in whole
// seconds: the client sends the requests of one second at once.
func (p *planner) assignLastMoments() map[types.UID]time.Time {
	type deletion struct {
		pod *snapshot.Pod
		at  time.Time
	}
	var all []deletion
	for _, m := range p.moves {
		switch {
		case m.Deadline.IsZero() || p.leaving(m.Pod):
		case p.isSpread(m):
			all = append(all, deletion{m.Pod, m.Deadline.Add(-shortestGrace)})
		default:
			all = append(all, deletion{m.Pod, m.Deadline.Add(-gracePeriod(m.Pod))})
		}
	}
	slices.SortFunc(all, func(a, b deletion) int { return cmp.Or(b.at.Compare(a.at), byName(b.pod, a.pod)) }) // the latest first
	// Each deletion gets a second, from the last one backwards. second is the start of the second
	// that was assigned last, and used is the number of deletions in it.
	var second time.Time
	perSecond, used := p.settings.RequestsPerSecond/requestsPerDeletion, 0
	moments := make(map[types.UID]time.Time, len(all))
	for _, d := range all {
		switch {
		case p.settings.RequestsPerSecond == 0:
			second = d.at // no limit
		case used == 0 || !d.at.After(second.Add(-time.Second)):
			second, used = d.at, 0
		case used >= perSecond:
			second, used = second.Add(-time.Second), 0
		}
		used++
		moments[d.pod.UID] = node.Earlier(d.at, second)
	}
	return moments
}

// NextLastMoment returns the first time after now at which a pod must be deleted if it is still on
// its node, so that Plan returns a new action; zero if none exists.
func NextLastMoment(s *snapshot.Snapshot, moves []Move, settings Settings) (next time.Time) {
	p := newPlanner(s, nil, moves, settings, nil)
	for _, m := range p.moves {
		if m.Deadline.IsZero() {
			continue
		}
		if at := p.lastMoment(m); at.After(p.now) {
			next = node.Earlier(next, at)
		}
	}
	return next
}

// longestGrace is the longest grace period, in seconds, that a Duration can express.
const longestGrace = math.MaxInt64 / int64(time.Second)

// gracePeriod returns the grace period of the pod, at least shortestGrace.
func gracePeriod(pod *snapshot.Pod) time.Duration {
	seconds := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	return max(time.Duration(min(seconds, longestGrace))*time.Second, shortestGrace)
}
