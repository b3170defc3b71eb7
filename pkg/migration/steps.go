package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// begin adds the first step of a move.
func (p *planner) begin(m urgent) {
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	if p.lastMoment(m.Move) {
		return
	}
	// Each moment of a pod that perhaps nothing makes again is worth more than an early end.
	if irreplaceable(m.Pod) || kube.CountedByPods(m.Pod.Pod) && (m.Deadline.IsZero() || !p.recreated(m.Pod)) {
		return
	}
	if m.Reason == Drain && !p.heldUp(m.Pod) {
		return
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	way, noSurge := p.wayOf(m.Pod)
	if m.Reason == Drain && way != Surge {
		a.Kind, a.Way, a.Why = Stay, way, "no replacement starts before it is evicted: "+noSurge
		p.add(a)
		return
	}
	requires := m.Requires
	if requires == decision.AssignedSpot && way != Surge {
		requires = decision.Unassigned // only the replacement of a released pod is made to require spot
	}
	to, full := p.room.Replace(m.Pod, requires)
	switch capacity, only := m.Reason.wants(); {
	case to == nil && way == Surge && p.buys(m.Move, requires) && m.Deadline.IsZero() && full != cluster.NotExamined:
		a.Unplaced, a.Why = true, fmt.Sprintf("nothing has room for a replacement: %s; ", full)
		if requires == decision.Unassigned {
			a.Why += "an autoscaler may add a node"
		} else {
			a.Why += fmt.Sprintf("it requires %s, so that an autoscaler adds a node", requires)
		}
	case to == nil && (m.Deadline.IsZero() || way == Evict && !p.budgeted(m.Pod)):
		if full != cluster.NotExamined { // else a later round looks for room
			p.stay(a, full)
		}
		return
	case to == nil && full == cluster.NotExamined:
		// The search may take too long in every round, because of pods of others. The scheduler finds the room if there is any.
		a.Unplaced, a.Why = true, "no time was left to look for room for a replacement"
	case to == nil:
		// The sooner a replacement waits, the sooner an autoscaler adds a node for it.
		a.Unplaced, a.Why = true, fmt.Sprintf("nothing has room for a replacement: %s; it waits for a new node", full)
	case only && to.Facts.Capacity.Type != capacity:
		return // what is urgent has taken the room that it was planned for
	default:
		a.Why = fmt.Sprintf("a replacement fits on node %s", to.Name)
		p.awaited = p.awaited || !m.Deadline.IsZero()
	}
	a.Kind, a.Way, a.ToSpot = Release, way, requires == decision.AssignedSpot
	step := firstStep{m.Move, a, noSurge}
	if a.Unplaced && !m.Deadline.IsZero() {
		p.unplaced = append(p.unplaced, step)
		return
	}
	p.start(step)
}

// firstStep is the first step of a move. If its Way is Evict, noSurge says why it is not Surge.
type firstStep struct {
	Move
	action  Action
	noSurge string
}

// placedFirst is how long after the notice of its node a pod without room for its replacement lets
// those with room start. They are released, replaced and scheduled within seconds.
const placedFirst = 10 * time.Second

// beginUnplaced begins the moves whose replacements have no room. For placedFirst it waits until no
// replacement that has room waits for it: the scheduler takes pods in the order in which they come,
// and would give the room of a floor to a replica beyond another floor.
func (p *planner) beginUnplaced() {
	if len(p.unplaced) > 0 {
		for _, pod := range p.snapshot.Pods {
			if pod.Spec.NodeName == "" && kube.Live(pod.Pod) && len(pod.Spec.SchedulingGates) == 0 {
				p.reserve(pod)
			}
		}
	}
	for _, s := range p.unplaced {
		if !p.awaited || !p.now.Before(s.Noticed.Add(placedFirst)) {
			p.start(s)
		}
	}
}

// start adds a first step.
func (p *planner) start(s firstStep) {
	defer recovery.Recover(recovery.Pod, klog.KObj(s.Pod))
	a := s.action
	if a.Way == Evict {
		if s.OnlySurge || p.spread(s.Move) && p.lastServing(s.Pod) {
			return // lastServing: until another replica serves, or its last moment comes
		}
		a.Kind, a.Why = EvictPod, fmt.Sprintf("%s; no surge: %s", a.Why, s.noSurge)
	}
	p.add(a)
}

// stay adds that a pod stays, and says until when.
func (p *planner) stay(a Action, full string) {
	a.Kind, a.Why = Stay, "nothing has room for a replacement: "+full
	if !a.Deadline.IsZero() {
		a.Why += "; it runs until " + p.moment(p.moves[a.Pod.UID]).UTC().Format(time.RFC3339)
	}
	p.add(a)
}

// lastMoment adds the step of a pod that has no more time for its eviction, and reports whether it
// did.
func (p *planner) lastMoment(m Move) bool {
	if m.Deadline.IsZero() || p.now.Before(p.moment(m)) {
		return false
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	if p.settings.DeleteAtDeadline {
		grace := max(min(gracePeriod(m.Pod), m.Deadline.Sub(p.now)).Truncate(time.Second), shortestGrace)
		a.Kind, a.Way, a.Grace, a.Why = DeletePod, Delete, &grace, "its node goes, and a budget cannot save it any more"
	} else {
		a.Kind, a.Way, a.Why = EvictPod, Evict, "its node goes"
	}
	p.add(a)
	return true
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
			asked := p.moves[pod.UID]
			if !asked.Deadline.IsZero() || m.Reason == Drain && asked.Reason == Requested {
				m = asked
			}
			released = append(released, m)
		}
	}
	slices.SortFunc(released, func(a, b Move) int {
		return cmp.Or(compareReady(a.Pod, b.Pod), CompareDeadlines(a.Deadline, b.Deadline),
			a.Pod.Release.At.Compare(b.Pod.Release.At), byName(a.Pod, b.Pod))
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
		surplus[revision] = p.surplusOf(revision, surplus[revision], first[revision])
	}
	wait := func(m Move) {
		defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
		a := Action{Pod: m.Pod, Reason: m.Reason, Way: Surge, Deadline: m.Deadline}
		switch revision := m.Pod.ReleasedFrom; {
		case m.Reason == Requested && p.moves[m.Pod.UID].Reason != Requested:
			a.Kind, a.Why = Restore, "its eviction is not requested any more"
		case m.Reason == Drain && m.Deadline.IsZero():
			replaced := surplus[revision] > 0
			if replaced {
				surplus[revision]--
			}
			p.awaitDrain(a, replaced)
			return
		case surplus[revision] > 0:
			surplus[revision]--
			p.evict(a, "its replacement is ready")
			return
		case m.Deadline.IsZero() && p.now.Sub(m.Pod.Release.At) >= p.patience(revision, m.Reason):
			a.Kind, a.Why = Restore, fmt.Sprintf("no replacement was ready after %s", p.patience(revision, m.Reason))
		default:
			return
		}
		p.add(a)
	}
	for _, m := range waiting {
		wait(m)
	}
}

// surplusOf returns how many pods a revision can do without, of which so many are released. If that cannot be found out, it is none.
func (p *planner) surplusOf(revision *cluster.Revision, released int, first time.Time) (surplus int) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Workload.Namespace, revision.Workload.Name))
	return released + p.availableOf(revision) + p.illOf(revision, first) - wanted(revision)
}

// evict adds the eviction of a released pod. Where that has been refused for long, by a budget that can never be met perhaps, and no
// deadline ends it, the pod goes back to its ReplicaSet, which then has one too many and removes one.
func (p *planner) evict(a Action, why string) {
	a.Kind, a.Why = EvictPod, why
	if revision := a.Pod.ReleasedFrom; a.Deadline.IsZero() && revision != nil {
		if within := p.patience(revision, a.Reason) + p.settings.SurgeTimeout; p.now.Sub(a.Pod.Release.At) >= within {
			a.Kind, a.Why = Restore, fmt.Sprintf("%s, but it was not evicted within %s", why, within)
		}
	}
	p.add(a)
}

// patience is how long a replacement of a revision, for a pod that is moved for that reason, may take to be available.
func (p *planner) patience(revision *cluster.Revision, reason Reason) time.Duration {
	timeout := p.settings.SurgeTimeout
	if slices.Contains(p.settings.Buying, reason) {
		timeout = max(timeout, p.settings.NodeStartup)
	}
	return timeout + minReady(revision.ReplicaSet)
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
func (p *planner) leave(m Move) (left bool) {
	left = true // nothing is planned for a pod if planning it fails
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	a := Action{Pod: m.Pod, Reason: m.Reason, Way: Surge, Deadline: m.Deadline}
	since, serves := ready(m.Pod)
	switch release, revision := m.Pod.Release, m.Pod.ReleasedFrom; {
	case !hidden(m.Pod):
		p.forget(m, a)
		return true
	case revision == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet)
	case wanted(revision) == 0 && (revision.Workload.Deployment == nil || kube.Replicas(revision.Workload.Deployment.Spec.Replicas) == 0):
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("%s is scaled to 0", revision.Workload.Name)
	case p.lastMoment(m):
		return true
	case wanted(revision) == 0:
		p.evict(a, fmt.Sprintf("ReplicaSet %s is rolled out", release.ReplicaSet))
		return true
	case m.Pod.Node == nil:
		p.evict(a, "its node is gone")
		return true
	case !serves && p.now.Sub(since) >= unreadyFor:
		p.evict(a, fmt.Sprintf("it has not been ready for %s", unreadyFor))
		return true
	default:
		return false
	}
	p.add(a)
	return true
}

// unreadyFor is how long a released pod that is not ready may take to become ready again before it
// is evicted without a replacement.
const unreadyFor = 30 * time.Second

// compareReady orders pods that are not ready before those that are: their end costs nothing.
func compareReady(a, b *cluster.Pod) int {
	_, readyA := ready(a)
	_, readyB := ready(b)
	switch {
	case readyA == readyB:
		return 0
	case readyB:
		return -1
	}
	return 1
}

// hidden reports whether no ReplicaSet selects the pod: it was released, and not given back.
func hidden(pod *cluster.Pod) bool {
	return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == kube.ReleasedHash
}

// forget adds the step of a pod that was given back. It keeps the annotation until its ReplicaSet has adopted it: if the ReplicaSet is deleted
// before, nothing else would collect the pod.
func (p *planner) forget(m Move, a Action) {
	switch held := heldByDeployment(m.Pod); {
	case held && m.Pod.ReleasedFrom != nil:
		if p.lastMoment(m) {
			return
		}
		a.Kind, a.Why = Restore, "somebody else has restored its label"
	case !held && metav1.GetControllerOfNoCopy(m.Pod) != nil:
		a.Kind, a.Why = Forget, "its ReplicaSet has adopted it again"
	case m.Pod.ReleasedFrom == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", m.Pod.Release.ReplicaSet)
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
		old := !pod.CreationTimestamp.Add(p.patience(revision, Unknown)).After(released)
		if !ok && old && !lost && !since.After(released) {
			n++
		}
	}
	return n
}
