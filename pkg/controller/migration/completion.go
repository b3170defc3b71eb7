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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// unreadyTimeout is how long a released pod may be unready before it is evicted without a
// replacement.
const unreadyTimeout = 30 * time.Second

// The controller restores a pod that was released for a drain if the pod is not evicted within
// drainTimeout. If its replacement may take longer, the pod waits for drainMargin after that time.
// kubectl drain retries every 5 s and Karpenter every 10 s, so a longer wait without an
// eviction means that the node is only cordoned.
const drainTimeout, drainMargin = 10 * time.Minute, time.Minute

// complete adds the next actions of released pods. These include pods that no move concerns any
// more, and pods that an earlier controller process released.
func (p *planner) complete() {
	released, first := p.released()
	// Some pods can leave without a replacement. The others of a revision wait together for ready
	// replacements, and any ready replacement will do.
	var waiting []Move
	unreplaced, used := map[*snapshot.Revision]int{}, map[*snapshot.Revision]int{}
	for _, m := range released {
		if p.leaving(m.Pod) {
			continue
		}
		waits := p.inFlight(m.Pod)
		if !waits {
			p.add(m, func(m Move) (next Action) {
				next, waits = p.completeAlone(m)
				return next
			})
			if waits {
				waiting = append(waiting, m)
			}
		}
		if waits && m.Pod.ReleasedFrom != nil {
			unreplaced[m.Pod.ReleasedFrom]++
		}
	}
	type goal struct {
		revision *snapshot.Revision
		reason   Reason
	}
	ready := map[goal]int{}
	for _, m := range waiting {
		revision, key := m.Pod.ReleasedFrom, goal{m.Pod.ReleasedFrom, m.Reason}
		if _, known := ready[key]; !known {
			ready[key] = p.readyReplacements(revision, m.Reason, unreplaced[revision], first[revision])
		}
		p.add(m, func(m Move) Action {
			if m.Reason == Requested && p.moves[m.Pod.UID].Reason != Requested {
				return m.action(Restore, Surge, "its eviction is no longer requested")
			}
			replaced := ready[key] > used[revision]
			if replaced {
				used[revision]++
			}
			return p.completeReplaced(m, replaced)
		})
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
		_, readyA := a.Pod.Ready()
		_, readyB := b.Pod.Ready()
		// The eviction of an unready pod costs nothing.
		return cmp.Or(TrueFirst(!readyA, !readyB), compareDeadlines(a.Deadline, b.Deadline),
			a.Pod.Release.At.Compare(b.Pod.Release.At), byName(a.Pod, b.Pod))
	})
	return released, first
}

// reasonOf returns why a pod was released. Any client can write the annotation, so an unknown value
// is not used as a metric label.
func reasonOf(r *snapshot.Release) Reason {
	if reason := Reason(r.Reason); slices.Contains(Reasons, reason) {
		return reason
	}
	return Unknown
}

// completeAlone returns the next action of a released pod that does not wait for a replacement.
// waits reports whether the pod waits for one.
//
// A pod whose label was restored keeps the annotation until its ReplicaSet has adopted it. If the
// ReplicaSet is deleted before, the controller has to delete the pod, because the garbage collector
// would not. A pod whose ReplicaSet is gone serves until the replicas that its Deployment wants are
// served elsewhere. If its Deployment wants none, no other controller would delete the pod.
func (p *planner) completeAlone(m Move) (next Action, waits bool) {
	since, isReady := m.Pod.Ready()
	restored, byDeployment := !Released(m.Pod), workload.ControlledByDeployment(m.Pod.Pod)
	release, revision, d := m.Pod.Release, m.Pod.ReleasedFrom, m.Pod.Deployment
	gone, unready := fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet), !isReady && p.now.Sub(since) >= unreadyTimeout
	switch {
	case restored && !byDeployment && metav1.GetControllerOfNoCopy(m.Pod) != nil:
		return m.action(Forget, Surge, "its ReplicaSet has adopted it again"), false
	case revision == nil && !WantsPods(d):
		return orphanDeletion(m, gone), false
	case revision != nil && !restored && desiredPods(revision) == 0 && (revision.Workload.Deployment == nil || workload.Replicas(revision.Workload.Deployment.Spec.Replicas) == 0):
		return orphanDeletion(m, revision.Workload.Name+" is scaled to 0"), false
	case p.lastMomentReached(m):
		return p.deletion(m), false
	case revision == nil:
		if m.Pod.Node == nil || unready || p.servesElsewhere(d) {
			next = m.action(EvictPod, Surge, gone)
		}
		return next, false
	case restored:
		if byDeployment || m.Pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != release.Hash {
			next = m.action(Restore, Surge, "another client has changed its marks")
		}
		return next, false // else the ReplicaSet will adopt it
	case desiredPods(revision) == 0:
		return p.eviction(m, fmt.Sprintf("ReplicaSet %s is rolled out", release.ReplicaSet)), false
	case m.Pod.Node == nil:
		return p.eviction(m, "its node is gone"), false
	case unready:
		return p.eviction(m, fmt.Sprintf("it has not been ready for %s", unreadyTimeout)), false
	}
	return Action{}, true
}

// Released reports whether no ReplicaSet selects the pod, because it was released and not
// restored.
func Released(pod *snapshot.Pod) bool {
	return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == spot.ReleasedHash
}

// WantsPods reports whether a Deployment exists and wants replicas; nil means that it does not
// exist.
func WantsPods(d *appsv1.Deployment) bool {
	return d != nil && d.DeletionTimestamp == nil && workload.Replicas(d.Spec.Replicas) > 0
}

// servesElsewhere reports whether a Deployment has as many available pods as it wants on nodes that
// remain.
func (p *planner) servesElsewhere(d *appsv1.Deployment) bool {
	n := 0
	for _, w := range p.snapshot.Workloads {
		if w.Deployment == nil || w.Deployment.UID != d.UID {
			continue
		}
		for _, r := range w.Revisions {
			for _, pod := range r.Pods {
				if pod.Node.Remains() && !p.leaving(pod) && available(pod, r.ReplicaSet, p.now) {
					n++
				}
			}
		}
	}
	return n >= workload.Replicas(d.Spec.Replicas)
}

// completeReplaced returns the next action of a released pod that waits for a replacement. replaced
// reports whether it has a ready one.
func (p *planner) completeReplaced(m Move, replaced bool) Action {
	revision := m.Pod.ReleasedFrom
	drained := m.Reason == Drain && m.Deadline.IsZero() // the draining client evicts the pod
	waited, timeout := p.now.Sub(m.Pod.Release.At), p.replacementTimeout(revision, m.Reason)
	evicted := max(drainTimeout, timeout+drainMargin)
	switch {
	case drained && p.moves[m.Pod.UID].Reason != Drain:
		return m.action(Restore, Surge, "its node is no longer being drained")
	case replaced && !drained:
		return p.eviction(m, "its replacement is ready")
	case !replaced && m.Deadline.IsZero() && waited >= timeout:
		return m.action(Restore, Surge, fmt.Sprintf("no replacement was ready after %s", timeout))
	case drained && waited >= evicted:
		return m.action(Restore, Surge, fmt.Sprintf("it was not evicted within %s", evicted))
	}
	return Action{}
}

// eviction returns the eviction of a released pod. Without a deadline, the controller restores the
// pod if its eviction was refused for too long, for example by a PodDisruptionBudget that can never
// be satisfied. The ReplicaSet then has one pod too many and deletes one.
func (p *planner) eviction(m Move, why string) Action {
	if m.Deadline.IsZero() {
		within := p.replacementTimeout(m.Pod.ReleasedFrom, m.Reason) + p.settings.SurgeTimeout
		if p.now.Sub(m.Pod.Release.At) >= within {
			return m.action(Restore, Surge, fmt.Sprintf("%s, but it was not evicted within %s", why, within))
		}
	}
	return m.action(EvictPod, Surge, why)
}

// orphanDeletion returns the deletion of a released pod whose ReplicaSet wants no replacement.
func orphanDeletion(m Move, why string) Action {
	a := m.action(DeletePod, Surge, why)
	a.Orphan = true
	return a
}

// readyReplacements returns how many of the released pods of a revision have a ready replacement
// that serves the goal of reason. The first pod was released at first. It returns 0 if the
// calculation fails.
func (p *planner) readyReplacements(revision *snapshot.Revision, reason Reason, released int, first time.Time) (n int) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Workload.Namespace, revision.Workload.Name))
	return released + p.availablePods(revision, reason, first) + p.unreadyBefore(revision, first) - desiredPods(revision)
}

// availablePods counts the available pods of a revision that are not about to be removed. It omits
// pods that were created since first, in whole seconds, and are not where reason requires them: on
// a node that remains, of the capacity type of its destination.
func (p *planner) availablePods(revision *snapshot.Revision, reason Reason, first time.Time) int {
	n := 0
	capacity, required := reason.destination()
	for _, pod := range revision.Pods {
		if p.leaving(pod) || !available(pod, revision.ReplicaSet, p.now) {
			continue
		}
		original := pod.CreationTimestamp.Time.Before(first.Truncate(time.Second))
		if original || pod.Node.Remains() && (!required || pod.Node.Facts.Capacity.Type == capacity) {
			n++
		}
	}
	return n
}

// unreadyBefore counts the pods of a revision that were already unready when its first released pod
// was released, although they had had as much time as a replacement gets. They replace no released
// pod, and an eviction leaves as many serving pods as before. Waiting for them might never end.
func (p *planner) unreadyBefore(revision *snapshot.Revision, released time.Time) int {
	n := 0
	for _, pod := range revision.Pods {
		since, ok := pod.Ready()
		lost := pod.Node == nil && pod.Spec.NodeName != ""
		old := !pod.CreationTimestamp.Add(p.replacementTimeout(revision, Unknown)).After(released)
		if !ok && old && !lost && !since.After(released) {
			n++
		}
	}
	return n
}

// replacementTimeout returns how long the replacement for a pod of the revision may take to be
// available, if the pod is moved for this reason.
func (p *planner) replacementTimeout(revision *snapshot.Revision, reason Reason) time.Duration {
	timeout := p.settings.SurgeTimeout
	if slices.Contains(p.settings.Buying, reason) {
		timeout = max(timeout, p.settings.NodeStartup)
	}
	return timeout + minReady(revision.ReplicaSet)
}
