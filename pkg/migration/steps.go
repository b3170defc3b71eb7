package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// begin adds the first step of a move.
func (p *planner) begin(m urgent) {
	if p.lastMoment(m.Move) {
		return
	}
	// Where nothing makes another one, or nobody knows whether something does, each moment that a pod has is worth more than an early end.
	if irreplaceable(m.Pod) || kube.CountedByPods(m.Pod.Pod) {
		return
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	to, why := p.room.Replace(m.Pod)
	if to == nil {
		a.Kind, a.Why = Stay, "nothing has room for a replacement: "+why
		p.add(a)
		return
	}
	if capacity, only := m.Reason.wants(); only && to.Facts.Capacity.Type != capacity {
		return // what is urgent has taken the room that it was planned for
	}
	a.Kind, a.Why = Release, fmt.Sprintf("a replacement fits on node %s", to.Name)
	if a.Way, why = p.wayOf(m.Pod); a.Way == Evict {
		if m.OnlySurge {
			return
		}
		a.Kind, a.Why = EvictPod, fmt.Sprintf("%s; no surge: %s", a.Why, why)
	}
	p.add(a)
}

// lastMoment adds the step of a pod whose grace period takes up all the time that is left, and reports whether it did.
func (p *planner) lastMoment(m Move) bool {
	own := gracePeriod(m.Pod)
	if m.Deadline.IsZero() || p.now.Before(m.Deadline.Add(-own)) {
		return false
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	if p.settings.DeleteAtDeadline {
		grace := max(min(own, m.Deadline.Sub(p.now)).Truncate(time.Second), time.Second)
		a.Kind, a.Way, a.Grace, a.Why = DeletePod, Delete, &grace, "its node goes, and a budget cannot save it any more"
	} else {
		a.Kind, a.Way, a.Why = EvictPod, Evict, "its node goes"
	}
	p.add(a)
	return true
}

// lastMoment is when the grace period of the pod takes up all the time that is left to the deadline, which must be set.
func (a *Action) lastMoment() time.Time { return a.Deadline.Add(-gracePeriod(a.Pod)) }

// NextLastMoment returns the first moment after now at which the grace period of a pod takes up all the time that is left to the deadline
// of its move, so that Plan has something new to do; zero if there is none. Where deadlines are whole seconds, so is it.
func NextLastMoment(moves []Move, now time.Time) (next time.Time) {
	for _, m := range moves {
		if m.Deadline.IsZero() {
			continue
		}
		if at := m.Deadline.Add(-gracePeriod(m.Pod)); at.After(now) && sooner(at, next) {
			next = at
		}
	}
	return next
}

// gracePeriod is what the pod is given to end, at least 1 s: with none it would be taken off the API before it has ended.
func gracePeriod(pod *cluster.Pod) time.Duration {
	seconds := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return max(time.Duration(seconds)*time.Second, time.Second)
}

// finish adds the next steps of released pods, also of those that nobody asks to move any more and of those that an earlier controller
// released.
func (p *planner) finish() {
	var released []Move
	first := map[*cluster.Revision]time.Time{}
	for _, pod := range p.snapshot.Pods {
		if pod.Release == nil {
			continue
		}
		if at, known := first[pod.ReleasedFrom]; !known || pod.Release.At.Before(at) {
			first[pod.ReleasedFrom] = pod.Release.At
		}
		if pod.DeletionTimestamp == nil {
			m := Move{Pod: pod, Reason: reasonOf(pod.Release)}
			if asked, ok := p.moves[pod.UID]; ok && !asked.Deadline.IsZero() {
				m.Reason, m.Deadline = asked.Reason, asked.Deadline
			}
			released = append(released, m)
		}
	}
	slices.SortFunc(released, func(a, b Move) int {
		return cmp.Or(CompareDeadlines(a.Deadline, b.Deadline), a.Pod.Release.At.Compare(b.Pod.Release.At), byName(a.Pod, b.Pod))
	})
	// Those that have nothing to wait for leave; the rest wait together for ready replacements, of which any will do.
	var waiting []Move
	surplus := map[*cluster.Revision]int{}
	for _, m := range released {
		switch {
		case p.leaving(m.Pod):
		case p.begun(m.Pod):
			count(surplus, m.Pod.ReleasedFrom)
		case p.leave(m):
		default:
			count(surplus, m.Pod.ReleasedFrom)
			waiting = append(waiting, m)
		}
	}
	for revision := range surplus {
		surplus[revision] += p.availableOf(revision) + p.illOf(revision, first[revision]) - wanted(revision)
	}
	for _, m := range waiting {
		a := Action{Pod: m.Pod, Reason: m.Reason, Way: Surge, Deadline: m.Deadline}
		switch revision := m.Pod.ReleasedFrom; {
		case surplus[revision] > 0:
			surplus[revision]--
			p.evict(a, "its replacement is ready")
			continue
		case m.Deadline.IsZero() && p.now.Sub(m.Pod.Release.At) >= p.patience(revision):
			a.Kind, a.Why = Restore, fmt.Sprintf("no replacement was ready after %s", p.patience(revision))
		default:
			continue
		}
		p.add(a)
	}
}

// evict adds the eviction of a released pod. Where that has been refused for long, by a budget that can never be met perhaps, and no
// deadline ends it, the pod goes back to its ReplicaSet, which then has one too many and removes one.
func (p *planner) evict(a Action, why string) {
	a.Kind, a.Why = EvictPod, why
	if revision := a.Pod.ReleasedFrom; a.Deadline.IsZero() && revision != nil {
		if within := p.patience(revision) + p.settings.SurgeTimeout; p.now.Sub(a.Pod.Release.At) >= within {
			a.Kind, a.Why = Restore, fmt.Sprintf("%s, but it was not evicted within %s", why, within)
		}
	}
	p.add(a)
}

// patience is how long a replacement of a revision may take to be available.
func (p *planner) patience(revision *cluster.Revision) time.Duration {
	return p.settings.SurgeTimeout + minReady(revision.ReplicaSet)
}

// reasonOf reads why a pod was released. Anybody may have written it, and a metric's label is no place for that.
func reasonOf(r *cluster.Release) Reason {
	if reason := Reason(r.Reason); slices.Contains(reasons, reason) {
		return reason
	}
	return Unknown
}

// count adds a pod to those of a revision, if there is one.
func count(of map[*cluster.Revision]int, revision *cluster.Revision) {
	if revision != nil {
		of[revision]++
	}
}

// leave adds the step of a released pod that has nothing to wait for, and reports whether it has.
func (p *planner) leave(m Move) bool {
	a := Action{Pod: m.Pod, Reason: m.Reason, Way: Surge, Deadline: m.Deadline}
	_, serves := ready(m.Pod)
	switch release, revision := m.Pod.Release, m.Pod.ReleasedFrom; {
	case !hidden(m.Pod):
		p.forget(m, a)
		return true
	case release.ReplicaSetUID == "" || release.Hash == "":
		a.Kind, a.Why = EvictPod, "its annotation does not say what it was released from"
	case revision == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet)
	case wanted(revision) == 0 && (revision.Workload.Deployment == nil || kube.Replicas(revision.Workload.Deployment.Spec.Replicas) == 0):
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("%s is scaled to 0", revision.Workload.Name)
	case p.lastMoment(m):
		return true
	case wanted(revision) == 0:
		p.evict(a, fmt.Sprintf("ReplicaSet %s is rolled out", release.ReplicaSet))
		return true
	case !serves:
		p.evict(a, "it serves nobody: it is not ready")
		return true
	default:
		return false
	}
	p.add(a)
	return true
}

// hidden reports whether no ReplicaSet selects the pod: it was released, and not given back.
func hidden(pod *cluster.Pod) bool {
	return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == kube.ReleasedHash
}

// forget adds the step of a pod that is not hidden although its annotation calls it released. What was given back keeps the annotation
// until its ReplicaSet has adopted it: should that go before, nobody else would collect the pod.
func (p *planner) forget(m Move, a Action) {
	release := m.Pod.Release
	back := release.ReplicaSetUID != "" && m.Pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == release.Hash
	switch {
	case !back || metav1.GetControllerOfNoCopy(m.Pod) != nil:
		// Whatever wrote the annotation, a template perhaps, nothing is to be finished.
		a.Kind, a.Why = Forget, "it is not released, only its annotation says so"
	case m.Pod.ReleasedFrom == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet)
	default:
		p.lastMoment(m)
		return
	}
	p.add(a)
}

// leaving reports whether the pod is being removed although the caches do not show it yet: it does not count as there any more.
func (p *planner) leaving(pod *cluster.Pod) bool {
	kind := p.progress[pod.UID]
	return kind == EvictPod || kind == DeletePod
}

// availableOf counts the pods of a revision that are available, and not about to leave.
func (p *planner) availableOf(revision *cluster.Revision) int {
	n := 0
	for _, pod := range revision.Pods {
		if !p.leaving(pod) && available(pod, revision.ReplicaSet, p.now) {
			n++
		}
	}
	return n
}

// illOf counts the pods of a revision that were not ready when the first of its released pods was released, although they had had the time
// that a replacement is given: none of them replaces a released pod, and without that no fewer serve than before. To wait for them might be
// to wait for ever.
func (p *planner) illOf(revision *cluster.Revision, released time.Time) int {
	n := 0
	for _, pod := range revision.Pods {
		since, ok := ready(pod)
		lost := pod.Node == nil && pod.Spec.NodeName != ""
		old := !pod.CreationTimestamp.Add(p.patience(revision)).After(released)
		if !ok && old && !lost && !since.After(released) {
			n++
		}
	}
	return n
}
