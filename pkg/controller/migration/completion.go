package migration

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
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
// more, and pods that an earlier controller process released. Some pods can leave without a
// replacement. The others of a revision wait together for ready replacements, and any ready
// replacement will do.
func (p *planner) complete(observed []*observation) {
	replacements := p.newReplacements(observed)
	var waiting []*observation
	for _, o := range inLeavingOrder(observed) {
		waits := o.InFlight != ""
		if !waits {
			p.add(o, func(o *observation) (next Action) {
				next, waits = p.completeAlone(o)
				return next
			})
			if waits {
				waiting = append(waiting, o)
			}
		}
		if waits && o.Pod.ReleasedFrom != nil {
			replacements.needed[o.Pod.ReleasedFrom]++
		}
	}
	for _, o := range waiting {
		p.add(o, func(o *observation) Action {
			if o.Reason == Requested && o.requested != Requested {
				return o.action(Restore, Surge, "its eviction is no longer requested")
			}
			return p.completeReplaced(o, replacements.take(o))
		})
	}
}

// inLeavingOrder returns the released pods that are not removed yet, in the order in which they get
// replacements.
func inLeavingOrder(observed []*observation) []*observation {
	released := slices.DeleteFunc(slices.Clone(observed), func(o *observation) bool {
		return o.Pod.Release == nil || o.Pod.DeletionTimestamp != nil || o.leaving()
	})
	slices.SortFunc(released, func(a, b *observation) int {
		// The eviction of an unready pod costs nothing.
		return cmp.Or(snapshot.TrueFirst(!a.ready, !b.ready), compareDeadlines(a.Deadline, b.Deadline),
			a.Pod.Release.At.Compare(b.Pod.Release.At), snapshot.ByName(a.Pod.Pod, b.Pod.Pod))
	})
	return released
}

// completeAlone returns the next action of a released pod that does not wait for a replacement.
// waits reports whether the pod waits for one.
//
// A pod whose label was restored keeps the annotation until its ReplicaSet has adopted it. If the
// ReplicaSet is deleted before, the controller has to delete the pod, because the garbage collector
// would not. A pod whose ReplicaSet is gone serves until the replicas that its Deployment wants are
// served elsewhere. If its Deployment wants none, no other controller would delete the pod.
func (p *planner) completeAlone(o *observation) (next Action, waits bool) {
	release, revision, paused := o.Pod.Release, o.Pod.ReleasedFrom, p.isPaused(o)
	unready := !o.ready && p.now.Sub(o.readySince) >= unreadyTimeout && !paused && !o.Unconfirmed
	gone := fmt.Sprintf("ReplicaSet %s is gone", release.ReplicaSet)
	switch {
	case o.adopted:
		next = o.action(Forget, Surge, "its ReplicaSet has adopted it again")
	case revision == nil && !WantsPods(o.Pod.Deployment):
		next = orphanDeletion(o, gone)
	case revision != nil && !o.restored && desiredPods(revision) == 0 &&
		(revision.Workload.Deployment == nil || workload.Replicas(revision.Workload.Deployment.Spec.Replicas) == 0):
		next = orphanDeletion(o, revision.Workload.Name+" is scaled to 0")
	case p.lastMomentReached(o) && !paused:
		next = p.deletion(o)
	case revision == nil && (o.Pod.Node == nil || unready || p.servesElsewhere(o.Pod.Deployment)):
		next = o.action(EvictPod, Surge, gone)
	case revision == nil:
	case o.changed:
		next = o.action(Restore, Surge, "another client has changed its marks")
	case o.restored: // the ReplicaSet will adopt it
	case desiredPods(revision) == 0:
		next = p.eviction(o, fmt.Sprintf("ReplicaSet %s is rolled out", release.ReplicaSet))
	case o.Pod.Node == nil:
		next = p.eviction(o, "its node is gone")
	case unready:
		next = p.eviction(o, fmt.Sprintf("it has not been ready for %s", unreadyTimeout))
	default:
		waits = true
	}
	return next, waits
}

// Released reports whether no ReplicaSet selects the pod, because it was released and not restored.
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
	for _, pod := range p.snapshot.Pods {
		if w := pod.Workload; w != nil && w.Deployment != nil && w.Deployment.UID == d.UID && pod.Live() && pod.Node.Remains() &&
			p.isAvailable(pod) {
			n++
		}
	}
	return n >= workload.Replicas(d.Spec.Replicas)
}

// completeReplaced returns the next action of a released pod that waits for a replacement. replaced
// reports whether it has a ready one.
func (p *planner) completeReplaced(o *observation, replaced bool) Action {
	drained := o.Reason == Drain && o.Deadline.IsZero() // the draining client evicts the pod
	waited, timeout := p.now.Sub(o.Pod.Release.At), p.replacementTimeout(o.Pod.ReleasedFrom, o.Reason)
	if o.Pod.Node != nil {
		// When the signal of many nodes ends, the scheduler places their pending replacements at
		// once. If the pods were restored at that moment, too many replicas would run on spot.
		waited = min(waited, p.settings.Departures[keyOfDeparture(o.Pod)].sinceCleared(o.Pod.Node, p.now))
	}
	evicted := max(drainTimeout, timeout+drainMargin)
	switch paused := p.isPaused(o); {
	case paused && replaced:
		return Action{}
	case paused:
		return o.action(Restore, Surge, "the controller is paused")
	case drained && o.requested != Drain:
		return o.action(Restore, Surge, "its node is no longer being drained")
	case replaced && !drained:
		return p.eviction(o, "its replacement is ready")
	case !replaced && o.Deadline.IsZero() && waited >= timeout:
		return o.action(Restore, Surge, fmt.Sprintf("no replacement was ready after %s", timeout))
	case drained && waited >= evicted:
		return o.action(Restore, Surge, fmt.Sprintf("it was not evicted within %s", evicted))
	}
	return Action{}
}

// eviction returns the eviction of a released pod. Without a deadline, the controller restores the
// pod if its eviction was refused for too long, for example by a PodDisruptionBudget that can never
// be satisfied. The ReplicaSet then has one pod too many and deletes one.
func (p *planner) eviction(o *observation, why string) Action {
	within := p.replacementTimeout(o.Pod.ReleasedFrom, o.Reason) + p.settings.Migration.SurgeTimeout.Duration
	if o.Deadline.IsZero() && min(p.now.Sub(o.Pod.Release.At), p.now.Sub(o.Free)) >= within {
		return o.action(Restore, Surge, fmt.Sprintf("%s, but it was not evicted within %s", why, within))
	}
	return o.action(EvictPod, Surge, why)
}

// orphanDeletion returns the deletion of a released pod whose ReplicaSet wants no replacement.
func orphanDeletion(o *observation, why string) Action {
	a := o.action(DeletePod, Surge, why)
	a.Orphan = true
	return a
}
