package migration

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// requestsPerDeletion is 2: one for the condition DisruptionTarget and one for the deletion.
const requestsPerDeletion = 2

// shortestGrace is the grace period of a pod that is deleted at its deadline. With a grace period
// of 0 the API server would remove the pod object before its containers have ended.
const shortestGrace = time.Second

// lastMoments returns the last moment of every pod with a deadline. It is the deadline less the
// grace period. For a pod whose deletion is spread it is the deadline less shortestGrace. If the
// client needs more than a second for all deletions, some start earlier, in whole seconds: the
// client sends the requests of one second at once.
func (p *planner) lastMoments() map[types.UID]time.Time {
	type moment struct {
		pod *snapshot.Pod
		at  time.Time
	}
	var all []moment
	for _, m := range p.moves {
		switch {
		case m.Deadline.IsZero() || p.leaving(m.Pod):
		case p.spread(m):
			p.countServing()
			all = append(all, moment{m.Pod, m.Deadline.Add(-shortestGrace)})
		default:
			all = append(all, moment{m.Pod, m.Deadline.Add(-gracePeriod(m.Pod))})
		}
	}
	slices.SortFunc(all, func(a, b moment) int { // the latest first
		if order := b.at.Compare(a.at); order != 0 {
			return order
		}
		return byName(b.pod, a.pod)
	})
	queue := deletionQueue{requestsPerSecond: p.settings.RequestsPerSecond}
	last := make(map[types.UID]time.Time, len(all))
	for _, m := range all {
		last[m.pod.UID] = queue.before(m.at)
	}
	return last
}

// deletionQueue finds a second for each deletion, from the last deletion backwards.
type deletionQueue struct {
	requestsPerSecond int // 0: no limit
	// second is the start of the second that was assigned last, and used is the number of deletions
	// in it.
	second time.Time
	used   int
}

// before returns the latest time, not after at, at which a deletion can be sent. Calls must pass
// non-increasing values of at.
func (q *deletionQueue) before(at time.Time) time.Time {
	switch {
	case q.requestsPerSecond == 0:
		return at
	case q.used == 0 || !at.After(q.second.Add(-time.Second)):
		q.second, q.used = at, 0
	case q.used >= q.requestsPerSecond/requestsPerDeletion:
		q.second, q.used = q.second.Add(-time.Second), 0
	}
	q.used++
	return node.Earlier(at, q.second)
}

// moment returns when the controller deletes the pod of a move with a deadline, if it is still on
// its node.
func (p *planner) moment(m Move) time.Time {
	last, ok := p.last[m.Pod.UID]
	if !ok {
		last = m.Deadline.Add(-gracePeriod(m.Pod))
	}
	if p.spread(m) {
		return node.Earlier(last, p.turn(m))
	}
	return last
}

// spread reports whether the deletion of a pod waits for its turn. The grace period of such a pod
// is at least as long as the notice of its node, so all replicas of its workload would be deleted
// at once. A pod that no controller recreates is not spread: it gets the longest possible grace
// period.
func (p *planner) spread(m Move) bool {
	own := m.Deadline.Add(-gracePeriod(m.Pod))
	return !own.After(m.Noticed) && m.Deadline.After(m.Noticed) &&
		(m.Pod.ReleasedFrom != nil || m.Pod.Workload != nil && p.recreated(m.Pod))
}

// turn returns when the notice allows the deletion of a pod against its PodDisruptionBudget. After
// k/n of the notice, k of n replicas may be missing, so the last replica is deleted at the
// deadline. A single replica is deleted after half of the notice.
func (p *planner) turn(m Move) time.Time {
	missing, replicas := p.missingWithout(m.Pod)
	notice := m.Deadline.Sub(m.Noticed)
	return m.Noticed.Add(notice / time.Duration(max(replicas, 2)) * time.Duration(max(missing, 1)))
}

// lastServing reports whether the pod is the only serving replica of a workload with several
// replicas.
func (p *planner) lastServing(pod *snapshot.Pod) bool {
	missing, replicas := p.missingWithout(pod)
	return replicas > 1 && missing >= replicas
}

// missingWithout returns how many replicas the workload lacks once the pod is gone. Pods that this
// plan evicts or deletes count as gone.
func (p *planner) missingWithout(pod *snapshot.Pod) (missing, replicas int) {
	w := pod.Workload
	if w == nil {
		w = pod.ReleasedFrom.Workload
	}
	replicas = max(w.Desired, 1)
	if workload.HasUnsupportedController(pod.Pod) {
		replicas += p.ending[w.Key] // Desired is the number of its live pods
	}
	missing = replicas - p.serving[w.Key]
	if p.serves(pod) {
		missing++
	}
	return missing, replicas
}

// countServing counts the serving and the terminating pods of each workload, once per plan.
func (p *planner) countServing() {
	if p.serving != nil {
		return
	}
	p.serving, p.ending = map[workload.OwnerKey]int{}, map[workload.OwnerKey]int{}
	for _, pod := range p.snapshot.Pods {
		if pod.Workload == nil && pod.ReleasedFrom == nil {
			continue
		}
		if p.serves(pod) {
			p.serving[group(pod)]++
		}
		if pod.DeletionTimestamp != nil {
			p.ending[group(pod)]++
		}
	}
}

// serves reports whether the pod is ready, not terminating, and not about to be removed.
func (p *planner) serves(pod *snapshot.Pod) bool {
	_, ok := ready(pod)
	return ok && pod.DeletionTimestamp == nil && !p.leaving(pod)
}

// NextLastMoment returns the first time after now at which a pod must be deleted if it is still on
// its node, so that Plan returns a new action; zero if none exists.
func NextLastMoment(s *snapshot.Snapshot, moves []Move, settings Settings) (next time.Time) {
	p := newPlanner(s, nil, moves, settings, nil)
	for _, m := range p.moves {
		if m.Deadline.IsZero() {
			continue
		}
		if at := p.moment(m); at.After(p.now) && sooner(at, next) {
			next = at
		}
	}
	return next
}

// longestGrace is the longest grace period, in seconds, that a Duration can express.
const longestGrace = math.MaxInt64 / int64(time.Second)

// gracePeriod returns the grace period of the pod, at least shortestGrace.
func gracePeriod(pod *snapshot.Pod) time.Duration {
	seconds := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return max(time.Duration(min(seconds, longestGrace))*time.Second, shortestGrace)
}
