package migration

import (
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// observation is a pod that must leave its node, or a released pod, with everything that a decision
// about it depends on, besides the time and the room. Every pod is read once, by planner.observe.
// Only the counts of its siblings and of its PodDisruptionBudgets change afterwards, when the plan
// removes pods.
type observation struct {
	// Move is the move of the pod. For a released pod it is the move that the pod was released for,
	// unless the requested move is more urgent.
	Move
	// requested is the reason of the requested move; "" if there is none.
	requested Reason
	PodProgress
	*siblings
	// desired is how many replicas the workload of the pod wants, at least 1.
	desired int
	budgets []*budget
	// ready reports whether the pod is ready, since readySince. serves reports whether it is also
	// not terminating and not about to be removed, and isSafe whether its node also remains.
	ready, serves, isSafe bool
	readySince            time.Time
	// unsupported: the controller of the pod is of a kind that is unknown to this project.
	unsupported bool
	// recreated reports whether a controller creates the pod again after its eviction.
	recreated bool
	// grace is the grace period of the pod, at least shortestGrace.
	grace time.Duration
	// spread reports whether the deletions of the replicas of its workload are spread over the
	// notice (isSpread). latest is when the pod is deleted at the latest; zero without a Deadline
	// and for an unconfirmed move.
	spread bool
	latest time.Time
	// restored reports whether the label of a released pod was restored. Then adopted reports
	// whether its ReplicaSet has adopted it, and changed whether another client has changed marks.
	restored, adopted, changed bool
	// startable reports whether a move of the pod may start now. The following fields are set only
	// if it may.
	startable bool
	// noSurge explains why the pod cannot be released; "" if it can.
	noSurge string
	// unpredictable explains why its successor may not run; see snapshot.Pod.Unpredictable.
	unpredictable string
	// departed is how many moves of the workload off the node have started, and returns explains
	// why the successor would come back to the node; "" if nothing is known.
	departed int
	returns  string
	// ordinalUnready: Kubernetes does not create the pod again before pods with lower ordinals are
	// ready. changing: a pod of the workload is missing, terminates, or is newer than the notice.
	ordinalUnready, changing bool
	// lost is how many of its live pods the workload would lose without moves. Earlier moves of the
	// same workload count as completed.
	lost int
	// need orders starts: needOf of an unconfirmed move, 0 for other moves with a deadline, else 3.
	need int
	// first is the first action of a postponed move.
	first Action
}

// siblings counts the pods of a workload. Pods that this plan evicts or deletes no longer serve.
type siblings struct {
	// live pods are the replicas of the workload; 0 if the workload is unknown.
	live int
	// serving pods are ready and not about to be removed. safe pods also run on a node that
	// remains.
	serving, safe int
	// terminating and released pods have left the workload.
	terminating, released int
	// firstReplaced is the pod that chooseFirstReplaced has chosen; nil if there is none.
	firstReplaced *observation
}

// observe reads the pods that must move or were released, in the order of the snapshot. A pod that
// cannot be read is omitted.
func (p *planner) observe(moves []Move) (observed []*observation) {
	requested := collect(moves)
	counts := len(moves) > 0 || slices.ContainsFunc(p.snapshot.Pods, func(pod *snapshot.Pod) bool { return pod.Release != nil })
	for _, pod := range p.snapshot.Pods {
		if counts {
			p.count(pod)
		}
		if p.progress[pod.UID].leaving() {
			charge(p.budgetsOf(pod), pod.IsReady())
		}
		if m, ok := requested[pod.UID]; ok || pod.Release != nil {
			recovery.Guard(recovery.Pod, klog.KObj(pod), func() { observed = append(observed, p.observePod(pod, m)) })
		}
	}
	p.assignLastMoments(observed)
	return observed
}

// observePod reads a pod with its requested move, which is zero if there is none.
func (p *planner) observePod(pod *snapshot.Pod, requested Move) *observation {
	o := &observation{
		Move: moveOf(pod, requested), requested: requested.Reason, PodProgress: p.progress[pod.UID],
		siblings: p.siblingsOf(pod), desired: 1, budgets: p.budgetsOf(pod), grace: gracePeriod(pod),
		serves: p.serves(pod), unsupported: workload.HasUnsupportedController(pod.Pod),
	}
	o.readySince, o.ready = pod.Ready()
	o.isSafe = o.serves && pod.Node.Remains()
	if w := pod.OwnWorkload(); w != nil {
		o.desired = max(w.Desired, 1)
	}
	o.recreated = p.isRecreated(o)
	o.spread = o.isSpread()
	if release := pod.Release; release != nil && !Released(pod) {
		byDeployment := workload.ControlledByDeployment(pod.Pod)
		o.restored, o.adopted = true, !byDeployment && metav1.GetControllerOfNoCopy(pod) != nil
		o.changed = byDeployment || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != release.Hash
	}
	// DaemonSet and static pods belong to their node, and terminating pods need no move.
	o.startable = (pod.Node != nil || o.Unreachable && o.recreated) && pod.Live() && workload.PolicyApplies(pod.Pod) && o.InFlight == ""
	return o
}

// observeStart reads what only the start of a move depends on.
func (p *planner) observeStart(o *observation) {
	departure := p.settings.Departures[keyOfDeparture(o.Pod)]
	o.noSurge, o.departed, o.returns = p.surges.obstacle(o.Pod, o.Unreleasable), len(departure.starts), departure.whyReturns(o)
	o.unpredictable = o.Pod.Unpredictable()
	if o.ordinalUnready = p.lowerOrdinalUnready(o.Pod); o.ordinalUnready {
		o.changing = o.changedSince(o.Noticed)
	}
}

// moveOf returns the move of a pod. A released pod is moved for the reason of its release, unless
// its requested move has a deadline or the same reason. Requested replaces Drain.
func moveOf(pod *snapshot.Pod, requested Move) Move {
	if pod.Release == nil {
		return requested
	}
	released := Move{Pod: pod, Reason: reasonOf(pod.Release)}
	if !requested.Deadline.IsZero() || requested.Reason == released.Reason || released.Reason == Drain && requested.Reason == Requested {
		return requested
	}
	return released
}

// isRecreated reports whether a controller creates the pod again after its eviction. A pod with a
// controller of an unknown kind may do work that is not repeated. It counts as recreated only if
// the kind is one of the configured EvictableOwners, or if a PodDisruptionBudget selects the pod,
// which shows that its owner expects evictions.
func (p *planner) isRecreated(o *observation) bool {
	if irreplaceable(o.Pod) || !o.unsupported {
		return !irreplaceable(o.Pod)
	}
	owner := workload.RevisionOf(o.Pod.Pod)
	return len(o.budgets) > 0 || slices.Contains(p.settings.Migration.EvictableOwners,
		schema.GroupKind{Group: owner.Group, Kind: owner.Kind}.String())
}

// irreplaceable reports whether no controller creates another pod for a live pod. The pod has no
// controller, or it belongs to a Job that fails with the loss of a pod.
func irreplaceable(pod *snapshot.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil || pod.Subject != nil && pod.Subject.Workload.Batch >= decision.NotRetriable
}

// lowerOrdinalUnready reports whether the pod belongs to an ordered StatefulSet in which a pod with
// a lower ordinal does not serve. Kubernetes then creates no later pod again.
func (p *planner) lowerOrdinalUnready(pod *snapshot.Pod) bool {
	if pod.Subject == nil || pod.Workload.StatefulSet == nil ||
		pod.Workload.StatefulSet.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return false
	}
	missing := pod.Subject.Pod.Workload.Ordinal
	for _, sibling := range pod.Revision.Pods {
		if at := sibling.Subject.Pod.Workload.Ordinal; at >= 0 && at < pod.Subject.Pod.Workload.Ordinal && p.serves(sibling) {
			missing--
		}
	}
	return missing > 0
}

// changedSince reports whether a pod of the workload is missing, terminating or was created since
// then.
func (o *observation) changedSince(since time.Time) bool {
	created := slices.ContainsFunc(o.Pod.Workload.Revisions, func(r *snapshot.Revision) bool {
		return slices.ContainsFunc(r.Pods, func(pod *snapshot.Pod) bool { return !pod.CreationTimestamp.Time.Before(since) })
	})
	return created || o.terminating > 0 || o.live < o.Pod.Workload.Desired
}

// workloadKey returns the key of the workload that loses the pod; the key of its revision if the
// workload is unknown.
func workloadKey(pod *snapshot.Pod) workload.OwnerKey {
	if w := pod.OwnWorkload(); w != nil {
		return w.Key
	}
	return workload.RevisionOf(pod.Pod)
}

func (p *planner) siblingsOf(pod *snapshot.Pod) *siblings {
	key := workloadKey(pod)
	if p.siblings[key] == nil {
		p.siblings[key] = &siblings{}
		if w := pod.OwnWorkload(); w != nil {
			p.siblings[key].live = len(w.Pods())
		}
	}
	return p.siblings[key]
}

func (p *planner) count(pod *snapshot.Pod) {
	s := p.siblingsOf(pod)
	if p.serves(pod) {
		s.serving++
		if pod.Node.Remains() {
			s.safe++
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		s.terminating++
	case pod.Release != nil || p.progress[pod.UID].InFlight == Release:
		s.released++
	}
}

// serves reports whether the pod is ready, not terminating, and not about to be removed.
func (p *planner) serves(pod *snapshot.Pod) bool {
	return pod.IsReady() && pod.DeletionTimestamp == nil && !p.progress[pod.UID].leaving()
}

// leaving reports whether the pod is being evicted or deleted but the caches do not show it yet.
// Such a pod no longer counts.
func (p PodProgress) leaving() bool { return p.InFlight == EvictPod || p.InFlight == DeletePod }

func (o *observation) remove() {
	if o.serves {
		o.serving--
	}
	if o.isSafe {
		o.safe--
	}
}

// replicas returns how many replicas the workload of the pod should have.
func (o *observation) replicas() int {
	if o.unsupported {
		return o.desired + o.terminating // desired is the number of its live pods
	}
	return o.desired
}

// missingWithout returns how many replicas the workload lacks once the pod is gone.
func (o *observation) missingWithout() int {
	missing := o.replicas() - o.serving
	if o.serves {
		missing++
	}
	return missing
}

// safeWithout reports whether another replica of the workload serves on a node that remains.
func (o *observation) safeWithout() bool {
	if o.isSafe {
		return o.safe > 1
	}
	return o.safe > 0
}

// longestGrace is the longest grace period, in seconds, that a Duration can express.
const longestGrace = math.MaxInt64 / int64(time.Second)

// gracePeriod returns the grace period of the pod, at least shortestGrace.
func gracePeriod(pod *snapshot.Pod) time.Duration {
	seconds := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	return max(time.Duration(min(seconds, longestGrace))*time.Second, shortestGrace)
}
