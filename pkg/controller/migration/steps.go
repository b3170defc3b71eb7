package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// begin adds the first step of a move.
func (p *planner) begin(m urgent) {
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	if p.lastMoment(m.Move) {
		return
	}
	// A pod that perhaps no controller recreates runs as long as possible.
	if irreplaceable(m.Pod) || workload.HasUnsupportedController(m.Pod.Pod) && (m.Deadline.IsZero() || !p.recreated(m.Pod)) {
		return
	}
	if m.Reason == Drain && !p.replacementFirst(m.Pod) {
		return
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	way, noSurge := p.wayOf(m.Pod)
	if m.Reason == Drain && way != Surge {
		a.Kind, a.Method, a.Why = Stay, way, "no replacement starts before it is evicted: "+noSurge
		p.add(a)
		return
	}
	requires := m.Requires
	if requires == decision.AssignedSpot && way != Surge {
		// only the replacement of a released pod can be made to require spot
		requires = decision.Unassigned
	}
	to, full := p.room.Replace(m.Pod, requires)
	switch capacity, only := m.Reason.wants(); {
	case to == nil && way == Surge && p.buys(m.Move, requires) && m.Deadline.IsZero() && full != simulation.NotExamined:
		a.Unplaced, a.Why = true, fmt.Sprintf("nothing has room for a replacement: %s; ", full)
		if requires == decision.Unassigned {
			a.Why += "an autoscaler may add a node"
		} else {
			a.Why += fmt.Sprintf("it requires %s, so that an autoscaler adds a node", requires)
		}
	case to == nil && (m.Deadline.IsZero() || way == Evict && !p.budgeted(m.Pod)):
		if full != simulation.NotExamined { // otherwise a later round searches for room
			p.stay(a, full)
		}
		return
	case to == nil && full == simulation.NotExamined:
		// Other pods may make the search too long in every round. The scheduler finds the room if
		// it exists.
		a.Unplaced, a.Why = true, "no time was left to look for room for a replacement"
	case to == nil:
		// The earlier the replacement is pending, the earlier an autoscaler adds a node for it.
		a.Unplaced, a.Why = true, fmt.Sprintf("nothing has room for a replacement: %s; it waits for a new node", full)
	case only && to.Facts.Capacity.Type != capacity:
		return // a more urgent move has reserved the room that it was planned for
	default:
		a.Why = fmt.Sprintf("a replacement fits on node %s", to.Name)
		p.awaited = p.awaited || !m.Deadline.IsZero()
	}
	a.Kind, a.Method, a.ToSpot = Release, way, requires == decision.AssignedSpot
	step := firstStep{m.Move, a, noSurge}
	if a.Unplaced && !m.Deadline.IsZero() {
		p.unplaced = append(p.unplaced, step)
		return
	}
	p.start(step)
}

// firstStep is the first step of a move. If its Way is Evict, noSurge explains why it is not Surge.
type firstStep struct {
	Move
	action  Action
	noSurge string
}

// placedFirst is how long moves without room for their replacements wait for moves with room,
// counted from the notice of the node. Within seconds these pods are released, replaced and
// scheduled.
const placedFirst = 10 * time.Second

// beginUnplaced starts the moves whose replacements have no room. Within placedFirst it starts them
// only if no replacement with room is still pending. The scheduler processes pods in order of
// arrival, and would give the room of one workload's floor to a replica beyond another workload's
// floor.
func (p *planner) beginUnplaced() {
	if len(p.unplaced) > 0 {
		for _, pod := range p.snapshot.Pods {
			if pod.Spec.NodeName == "" && workload.Live(pod.Pod) && len(pod.Spec.SchedulingGates) == 0 {
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
	if a.Method == Evict {
		if s.OnlySurge || p.spread(s.Move) && p.lastServing(s.Pod) {
			return // If lastServing: wait until another replica serves, or until the last moment.
		}
		a.Kind, a.Why = EvictPod, fmt.Sprintf("%s; no surge: %s", a.Why, s.noSurge)
	}
	p.add(a)
}

// stay adds a Stay that explains why the pod stays, and until when.
func (p *planner) stay(a Action, full string) {
	a.Kind, a.Why = Stay, "nothing has room for a replacement: "+full
	if !a.Deadline.IsZero() {
		a.Why += "; it runs until " + p.moment(p.moves[a.Pod.UID]).UTC().Format(time.RFC3339)
	}
	p.add(a)
}

// lastMoment adds the step of a pod that has no more time for an eviction. It reports whether it
// added one.
func (p *planner) lastMoment(m Move) bool {
	if m.Deadline.IsZero() || p.now.Before(p.moment(m)) {
		return false
	}
	a := Action{Pod: m.Pod, Reason: m.Reason, Deadline: m.Deadline}
	if p.settings.DeleteAtDeadline {
		grace := max(min(gracePeriod(m.Pod), m.Deadline.Sub(p.now)).Truncate(time.Second), shortestGrace)
		a.Kind, a.Method, a.Grace, a.Why = DeletePod, Delete, &grace, "its node is about to be reclaimed, and no time is left for an eviction"
	} else {
		a.Kind, a.Method, a.Why = EvictPod, Evict, "its node is about to be reclaimed"
	}
	p.add(a)
	return true
}

// finish adds the next steps of released pods. These include pods that no move concerns any more,
// and pods that an earlier controller process released.
func (p *planner) finish() {
	released, first := p.released()
	// Some pods can be evicted without waiting. The others wait together for ready replacements,
	// and any ready replacement will do.
	var waiting []Move
	surplus := map[*snapshot.Revision]int{}
	for _, m := range released {
		switch {
		case p.leaving(m.Pod):
		case p.inFlight(m.Pod):
			count(surplus, m.Pod.ReleasedFrom)
		case p.finishUnconditionally(m):
		default:
			count(surplus, m.Pod.ReleasedFrom)
			waiting = append(waiting, m)
		}
	}
	for revision := range surplus {
		surplus[revision] = p.surplusOf(revision, surplus[revision], first[revision])
	}
	for _, m := range waiting {
		p.finishReplaced(m, surplus)
	}
}

// released returns the moves of the released pods that do not terminate, in the order in which they
// get replacements. first contains the time of the first release of each revision.
func (p *planner) released() (released []Move, first map[*snapshot.Revision]time.Time) {
	first = map[*snapshot.Revision]time.Time{}
	for _, pod := range p.snapshot.Pods {
		if pod.Release == nil {
			continue
		}
		if at, known := first[pod.ReleasedFrom]; !known || pod.Release.At.Before(at) {
			first[pod.ReleasedFrom] = pod.Release.At
		}
		if pod.DeletionTimestamp == nil {
			m := Move{Pod: pod, Reason: reasonOf(pod.Release)}
			requested := p.moves[pod.UID]
			if !requested.Deadline.IsZero() || m.Reason == Drain && requested.Reason == Requested {
				m = requested
			}
			released = append(released, m)
		}
	}
	slices.SortFunc(released, func(a, b Move) int {
		return cmp.Or(compareReady(a.Pod, b.Pod), CompareDeadlines(a.Deadline, b.Deadline),
			a.Pod.Release.At.Compare(b.Pod.Release.At), byName(a.Pod, b.Pod))
	})
	return released, first
}

// finishReplaced adds the next step of a released pod that waits for a replacement, if it has one.
// The pod uses one of the surplus pods of its revision.
func (p *planner) finishReplaced(m Move, surplus map[*snapshot.Revision]int) {
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	a := Action{Pod: m.Pod, Reason: m.Reason, Method: Surge, Deadline: m.Deadline}
	switch revision := m.Pod.ReleasedFrom; {
	case m.Reason == Requested && p.moves[m.Pod.UID].Reason != Requested:
		a.Kind, a.Why = Restore, "its eviction is no longer requested"
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

// surplusOf returns how many pods a revision can spare. released is the number of its released
// pods. It returns 0 if the calculation fails.
func (p *planner) surplusOf(revision *snapshot.Revision, released int, first time.Time) (surplus int) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Workload.Namespace, revision.Workload.Name))
	return released + p.availableOf(revision) + p.unreadyOf(revision, first) - wanted(revision)
}

// evict adds the eviction of a released pod. Without a deadline, the controller restores the pod if
// its eviction was refused for too long, for example by a PodDisruptionBudget that can never be
// satisfied. The ReplicaSet then has one pod too many and deletes one.
func (p *planner) evict(a Action, why string) {
	a.Kind, a.Why = EvictPod, why
	if revision := a.Pod.ReleasedFrom; a.Deadline.IsZero() && revision != nil {
		if within := p.patience(revision, a.Reason) + p.settings.SurgeTimeout; p.now.Sub(a.Pod.Release.At) >= within {
			a.Kind, a.Why = Restore, fmt.Sprintf("%s, but it was not evicted within %s", why, within)
		}
	}
	p.add(a)
}

// patience returns how long the replacement for a pod of the revision may take to be available, if
// the pod is moved for this reason.
func (p *planner) patience(revision *snapshot.Revision, reason Reason) time.Duration {
	timeout := p.settings.SurgeTimeout
	if slices.Contains(p.settings.Buying, reason) {
		timeout = max(timeout, p.settings.NodeStartup)
	}
	return timeout + minReady(revision.ReplicaSet)
}

// reasonOf returns why a pod was released. Any client can write the annotation, so an unknown value
// is not used as a metric label.
func reasonOf(r *snapshot.Release) Reason {
	if reason := Reason(r.Reason); slices.Contains(reasons, reason) {
		return reason
	}
	return Unknown
}

// count adds a pod to the count of its revision, if the revision exists.
func count(of map[*snapshot.Revision]int, revision *snapshot.Revision) {
	if revision != nil {
		of[revision]++
	}
}

// finishUnconditionally adds the step of a released pod that does not wait for a replacement, and
// reports whether this is such a pod.
func (p *planner) finishUnconditionally(m Move) (done bool) {
	done = true // nothing is planned for a pod if planning it fails
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	a := Action{Pod: m.Pod, Reason: m.Reason, Method: Surge, Deadline: m.Deadline}
	since, serves := ready(m.Pod)
	switch release, revision := m.Pod.Release, m.Pod.ReleasedFrom; {
	case !hasReleasedLabel(m.Pod):
		p.forget(m, a)
		return true
	case revision == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet)
	case wanted(revision) == 0 && (revision.Workload.Deployment == nil || workload.Replicas(revision.Workload.Deployment.Spec.Replicas) == 0):
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

// unreadyFor is how long a released pod may be unready before it is evicted without a replacement.
const unreadyFor = 30 * time.Second

// compareReady orders unready pods before ready pods: their eviction costs nothing.
func compareReady(a, b *snapshot.Pod) int {
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

// hasReleasedLabel reports whether no ReplicaSet selects the pod, because it was released and not
// restored.
func hasReleasedLabel(pod *snapshot.Pod) bool {
	return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == spot.ReleasedHash
}

// forget adds the step of a pod that was restored. The pod keeps the annotation until its
// ReplicaSet has adopted it. If the ReplicaSet is deleted before, the controller has to delete the
// pod, because the garbage collector would not.
func (p *planner) forget(m Move, a Action) {
	switch controlled := controlledByDeployment(m.Pod); {
	case controlled && m.Pod.ReleasedFrom != nil:
		if p.lastMoment(m) {
			return
		}
		a.Kind, a.Why = Restore, "another client has restored its label"
	case !controlled && metav1.GetControllerOfNoCopy(m.Pod) != nil:
		a.Kind, a.Why = Forget, "its ReplicaSet has adopted it again"
	case m.Pod.ReleasedFrom == nil:
		a.Kind, a.Orphan, a.Why = DeletePod, true, fmt.Sprintf("ReplicaSet %s is gone", m.Pod.Release.ReplicaSet)
	default:
		p.lastMoment(m)
		return
	}
	p.add(a)
}

// leaving reports whether the pod is being evicted or deleted but the caches do not show it yet.
// Such a pod no longer counts.
func (p *planner) leaving(pod *snapshot.Pod) bool {
	kind := p.progress[pod.UID]
	return kind == EvictPod || kind == DeletePod
}

// availableOf counts the available pods of a revision that are not about to be removed.
func (p *planner) availableOf(revision *snapshot.Revision) int {
	n := 0
	for _, pod := range revision.Pods {
		if !p.leaving(pod) && available(pod, revision.ReplicaSet, p.now) {
			n++
		}
	}
	return n
}

// unreadyOf counts the pods of a revision that were already unready when its first released pod was
// released, although they had had as much time as a replacement gets. They replace no released pod,
// and an eviction leaves as many serving pods as before. Waiting for them might never end.
func (p *planner) unreadyOf(revision *snapshot.Revision, released time.Time) int {
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
