package gating

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// grantFor is how long a grant is valid for the successor of a deleted pod. The pod's controller
// creates the successor within milliseconds, and after failures within seconds. If the leader dies
// in between, the successor waits again.
const grantFor = time.Minute

// reassignAfter is how long a pod waits, although its successor would be assigned another capacity
// type, before the controller replaces it. Such pods lost their gate while the controller did not
// run, or the policy or the nodes have changed. reconsiderInterval is the interval at which the
// controller examines the waiting pods.
const reassignAfter, reconsiderInterval = 30 * time.Second, 5 * time.Second

// maxEventLists limits for how many pods of one revision the controller lists events at a time.
const maxEventLists = 10

// refusalDelay is how long an autoscaler may take to report a refusal, and refusalInterval is the
// interval at which the controller reads the events of a waiting pod for refusals.
const refusalDelay, refusalInterval = 10 * time.Second, 30 * time.Second

// reassignAgain is how long after a reassignment another pod of the revision may be reassigned if
// no gate of the revision was removed in between.
const reassignAgain = time.Hour

// replacement is the deletion of a waiting pod, until its successor is assigned.
type replacement struct {
	pod string // its name
	why string
	at  time.Time
}

// mayReplace reports whether a pod of the revision may be replaced for this reason. The pods of a
// revision are replaced one at a time, because the successor counts too.
func (a *Assigner) mayReplace(revision workload.OwnerKey, why string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, pending := a.replaced[revision]
	delay := grantFor
	if why == reassigned && last.why == reassigned {
		delay = reassignAgain
	}
	return !pending || a.clock.Since(last.at) >= delay
}

// addReplacement records a replacement, and forgets the outdated ones.
func (a *Assigner) addReplacement(revision workload.OwnerKey, r replacement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.replaced, func(_ workload.OwnerKey, r replacement) bool { return a.clock.Since(r.at) >= reassignAgain })
	a.replaced[revision] = r
}

// takeGrant returns the replacement whose reason is a grant for the gated pod, and forgets it: the
// next pod of the revision gets the grant, or the pod with the same name in a StatefulSet.
func (a *Assigner) takeGrant(revision workload.OwnerKey, s sibling) (r replacement, granted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, pending := a.replaced[revision]
	if !pending || r.why == reassigned || a.clock.Since(r.at) >= grantFor || s.subject.Pod.Workload.Ordered && s.pod.Name != r.pod {
		return replacement{}, false
	}
	delete(a.replaced, revision)
	return r, true
}

// replaceWaiting deletes the pods of a revision that have waited too long, because the API server
// does not allow a change of affinity on a pod without a gate. assigned is the number of live pods
// of the revision that are assigned to the floor, and granted that of pods with a grant. It returns
// when to examine the waiting pods again; 0 if there is none.
func (a *Assigner) replaceWaiting(ctx context.Context, revision workload.OwnerKey, waiting []sibling,
	assigned, granted int) (again time.Duration, err error) {
	if len(waiting) == 0 {
		return 0, nil
	}
	if err := a.readRefusal(ctx, revision, waiting[0]); err != nil {
		return 0, err
	}
	lists := 0
	olderOnDemand := sync.OnceValue(func() bool { return a.olderOnDemand(waiting[0].subject) })
	decide := a.deciderAgain(assigned, granted)
	for _, s := range waiting {
		waited, known := a.waitedFor(s.pod)
		if !known {
			continue
		}
		why, overdue := a.replaceReason(s, waited, decide, olderOnDemand)
		switch now := a.clock.Now(); {
		case why == "" || !a.mayReplace(revision, why) || now.Before(a.recorded(s.pod.UID).startingUntil):
			continue
		case why != reassigned && a.owners.HasReleased(revision, workload.HealReason, now): // its goal is on-demand
			continue // the released pod serves, and returns without it
		case why == reassigned && requirementOf(s) == decision.AssignedSpot && a.owners.HasReleased(revision, "", now):
			continue // as above; its goal is spot
		}
		if !a.isRecreated(s.pod) {
			if why != reassigned {
				a.recordNoSuccessor(s.pod)
			}
			continue
		}
		if lists++; lists > maxEventLists {
			return time.Second, nil
		}
		started, _, err := a.provisioningOf(ctx, s.pod)
		if err != nil {
			return 0, err
		}
		if left := a.settings.NodeStartup - max(a.clock.Since(started), overdue); left > 0 {
			a.mu.Lock()
			a.record(s.pod.UID).startingUntil = a.clock.Now().Add(left)
			a.mu.Unlock()
			continue
		}
		if a.settings.Paused.Stops(safety.Pending) {
			return time.Second, nil
		}
		return time.Second, a.replace(ctx, revision, s, why)
	}
	return reconsiderInterval, nil
}

// reassigned is a reason to replace a pod without a grant: the successor is assigned another
// capacity type.
const reassigned = "reassigned"

// requirementOf returns the capacity type that the controller made a pod require; Unassigned for
// none.
func requirementOf(s sibling) decision.AssignedCapacity {
	if assigned := s.subject.Pod.Assigned; assigned == decision.AssignedSpot ||
		assigned == decision.AssignedOnDemand && s.subject.Pod.OnlyOnDemand {
		return assigned
	}
	return decision.Unassigned
}

// deciderAgain returns a function that returns what the successor of a waiting pod would be
// assigned. The function decides once about all pods of a revision that require the same, because
// they have one template, except in a StatefulSet.
func (a *Assigner) deciderAgain(assigned, granted int) func(sibling) decision.AssignedCapacity {
	decided := map[decision.AssignedCapacity]decision.AssignedCapacity{}
	return func(s sibling) decision.AssignedCapacity {
		requires, ordered := requirementOf(s), s.subject.Pod.Workload.Ordered
		if c, known := decided[requires]; known && !ordered {
			return c
		}
		subject, f := *s.subject, a.factsOf(s.pod, assigned)
		switch requires {
		case decision.AssignedOnDemand:
			subject.Pod.OnlyOnDemand = false // the assignment added this requirement
			f.assigned--                     // the pod itself
		case decision.Unassigned:
			f.assigned += granted // a granted pod replaces a replica of the floor that did not fit on on-demand
		}
		decided[requires] = f.labels.choose(&subject, s.settings, f).assigned
		return decided[requires]
	}
}

// replaceReason returns the reason to replace a pod that has waited that long, and for how long the
// reason has applied; "" without a reason. decide returns what the pod's successor would be
// assigned.
func (a *Assigner) replaceReason(
	s sibling, waited time.Duration, decide func(sibling) decision.AssignedCapacity, olderOnDemand func() bool,
) (why string, overdue time.Duration) {
	pod, requires := &s.subject.Pod, requirementOf(s)
	if pod.Granted != decision.NotGranted || pod.OnlySpot {
		return "", 0
	}
	next := decision.Unassigned
	switch {
	case requires != decision.Unassigned:
		next = decide(s)
	case pod.OnlyOnDemand: // the affinity of its user, which the controller must not loosen
	case s.settings.WhenUnsatisfiable != decision.ScheduleAnyway && pod.Assigned != decision.AssignedOnDemand:
		next = decide(s)
	}
	switch {
	case next == requires && requires == decision.AssignedOnDemand:
		return fallbackReason(s.settings, waited, olderOnDemand)
	case next == requires, requires == decision.Unassigned && next == decision.AssignedAny:
	case waited >= reassignAfter && a.assignsSuccessors(s.pod):
		return reassigned, waited - reassignAfter
	}
	return "", 0
}

// fallbackReason is as replaceReason for a pod that still has to run on on-demand.
func fallbackReason(
	settings decision.WorkloadSettings, waited time.Duration, olderOnDemand func() bool,
) (why string, overdue time.Duration) {
	fallback, relief := settings.FallbackAfter, settings.RolloutRelief
	switch {
	case fallback != decision.Never && waited >= fallback:
		return spot.GrantedFallback, waited - fallback
	case relief != decision.Never && waited >= relief && olderOnDemand():
		return spot.GrantedRelief, waited - relief
	}
	return "", 0
}

// waitedFor returns how long no scheduler has found a node for the pod, since its last gate was
// removed, if the pod records it.
func (a *Assigner) waitedFor(pod *v1.Pod) (waited time.Duration, known bool) {
	since, known := workload.WaitingSince(pod, a.clock.Now())
	return a.clock.Since(since), known
}

// isRecreated reports whether the pod's controller recreates it after a deletion without other
// effects. A Job may count the pod as failed, and an adopted pod may have what its successor lacks.
func (a *Assigner) isRecreated(pod *v1.Pod) bool {
	return a.createsSuccessors(pod) && !a.isAdopted(pod)
}

// createsSuccessors reports whether the pod's controller creates a pod after a deletion.
func (a *Assigner) createsSuccessors(pod *v1.Pod) bool {
	key := workload.RevisionOf(pod) // of kind Pod without a controller
	return slices.Contains([]string{"ReplicaSet.apps", "StatefulSet.apps", "ReplicationController."}, key.Kind+"."+key.Group) ||
		slices.Contains(a.settings.EvictableOwners, key.Kind+"."+key.Group)
}

// isAdopted reports whether the pod's controller did not create it: the pod is older than its
// controller, or has been observed without one. A backup restores pods so, and fills the volumes of
// just these pods.
func (a *Assigner) isAdopted(pod *v1.Pod) bool {
	switch {
	case metav1.GetControllerOfNoCopy(pod) == nil:
		return false
	case a.recorded(pod.UID).orphaned:
		return true
	}
	_, owners, err := a.owners.SubjectAndObjects(pod)
	return err == nil && (owners.ReplicaSet != nil && pod.CreationTimestamp.Before(&owners.ReplicaSet.CreationTimestamp) ||
		owners.StatefulSet != nil && pod.CreationTimestamp.Before(&owners.StatefulSet.CreationTimestamp))
}

// assignsSuccessors reports whether a successor of the pod would be assigned: the controller has
// removed a gate in the namespace after the pod was created, or the gate of the pod, and the policy
// is bound. Otherwise the admission policy may be missing, or the API server may refuse the
// controller's patches, and the successor would be in the same situation as the pod.
func (a *Assigner) assignsSuccessors(pod *v1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gateRemovedAt[pod.Namespace].After(pod.CreationTimestamp.Time) ||
		workload.AssignedCapacityOf(pod) != decision.Unassigned && a.admissionPolicy.GatesReplacement(time.Time{})
}

func (a *Assigner) olderOnDemand(subject *workload.Subject) bool {
	older, err := a.owners.OlderRevisions(subject)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(older, func(revision workload.OwnerKey) bool {
		pods, err := a.livePods(revision)
		return err == nil && slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			node, err := a.nodes.Get(pod.Spec.NodeName)
			return err == nil && a.capacity(node).Type == decision.OnDemand
		})
	})
}

// readRefusal records it if an autoscaler cannot provide a node of the assigned capacity type for a
// waiting pod.
func (a *Assigner) readRefusal(ctx context.Context, revision workload.OwnerKey, s sibling) error {
	requires, now := s.subject.Pod.Assigned, a.clock.Now()
	waited, known := a.waitedFor(s.pod)
	if !known || waited < refusalDelay || requires != decision.AssignedOnDemand && requires != decision.AssignedSpot ||
		a.settings.Provisioning.Refused(revision, requires, now) {
		return nil
	}
	a.mu.Lock()
	p := a.record(s.pod.UID)
	early := now.Sub(p.eventsRead) < refusalInterval
	if !early {
		p.eventsRead = now
	}
	a.mu.Unlock()
	if early {
		return nil
	}
	started, refused, err := a.provisioningOf(ctx, s.pod)
	if err == nil && refused.After(started) {
		a.settings.Provisioning.Refuse(revision, requires, refused)
		klog.FromContext(ctx).Info("Autoscaler cannot provide a node", "pod", klog.KObj(s.pod), "requires", requires)
	}
	return err
}

// provisioningOf returns when an autoscaler last reported that it starts a node for the pod, and
// when that it cannot provide one; zero for never. A user who can create such an event can only
// delay pods of the own namespace.
func (a *Assigner) provisioningOf(ctx context.Context, pod *v1.Pod) (started, refused time.Time, err error) {
	list, err := a.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String(), Limit: 100,
	})
	switch {
	case apierrors.IsForbidden(err):
		return a.clock.Now(), refused, nil // the right came with manifests/overlays/autoscaler, and went with it: a node may be starting
	case err != nil:
		return started, refused, fmt.Errorf("listing the events of pod %s: %w", klog.KObj(pod), err)
	}
	for i := range list.Items {
		e, at := &list.Items[i], lastRecorded(&list.Items[i])
		for _, known := range providers.ProvisioningEvents {
			switch matches := e.Reason == known.Reason && strings.Contains(e.Message, known.Mentions); {
			case matches && known.Refusal && at.After(refused):
				refused = at
			case matches && !known.Refusal && at.After(started):
				started = at
			}
		}
	}
	return started, refused, nil
}

// lastRecorded returns when an event was last recorded, in either of the two event APIs.
func lastRecorded(e *v1.Event) time.Time {
	times := []time.Time{e.EventTime.Time, e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// replace deletes a pod that never ran, and gives its successor the grant. It does nothing if the
// pod has changed, for example because it was bound.
func (a *Assigner) replace(ctx context.Context, revision workload.OwnerKey, s sibling, why string) error {
	// Before the deletion, because the successor may exist before the API server answers.
	a.addReplacement(revision, replacement{s.pod.Name, why, a.clock.Now()})
	err := execution.DeletePending(ctx, a.client, s.pod)
	if performed, _ := execution.Performed(ctx, a.client, s.pod, err, func(*v1.Pod) bool { return false }); !performed {
		a.mu.Lock()
		delete(a.replaced, revision)
		a.mu.Unlock()
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("deleting unschedulable pod %s: %w", klog.KObj(s.pod), err)
	}
	replacedPods.WithLabelValues(why).Inc()
	note := "No on-demand node was found, and the pod's affinity cannot be loosened: its successor may run on spot (" + why + ")"
	if why == reassigned {
		note = "The pod waited with affinity that does not express its policy: its successor is assigned a capacity type again"
	}
	a.recorder.Eventf(s.pod, nil, v1.EventTypeWarning, spot.ReasonReplacedPending, "Replace", "%s", note)
	klog.FromContext(ctx).Info("Deleted unschedulable pod",
		"pod", klog.KObj(s.pod), "podUID", s.pod.UID, "cause", safety.Pending, "reason", why)
	return nil
}

// recordNoSuccessor records once that a pod cannot be replaced.
func (a *Assigner) recordNoSuccessor(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.record(pod.UID); !p.reported {
		p.reported = true
		a.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonNoSuccessor, "Assign",
			"The pod has waited for on-demand longer than its policy allows, but its affinity can no longer be changed, "+
				"and no controller would recreate it as it is after a deletion")
	}
}
