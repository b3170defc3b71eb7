package gating

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// grantFor is how long a grant is valid for the successor of a deleted pod. The pod's controller
// creates the successor within milliseconds, and after failures within seconds. If the leader dies
// in between, the successor waits again.
const grantFor = time.Minute

// reassignAfter is how long a pod waits without requiring on-demand, although the floor lacks a
// replica, before the controller replaces it by a pod that requires on-demand. Such pods lost their
// gate while the controller did not run.
const reassignAfter = 30 * time.Second

// maxEventLists limits for how many pods of one revision the controller lists events at a time.
const maxEventLists = 10

// nodeStarts are the event reasons by which Karpenter and the cluster autoscaler report a node that
// they start, or expect, for a pod.
var nodeStarts = []string{"Nominated", "TriggeredScaleUp"}

// successor identifies the pod that gets the grant of a deleted pod: the next pod of the revision,
// or the pod with the same name in a StatefulSet.
type successor struct {
	revision workload.OwnerKey
	name     string
}

func successorOf(revision workload.OwnerKey, s sibling) successor {
	if s.subject.Pod.Workload.Ordered {
		return successor{revision, s.pod.Name}
	}
	return successor{revision: revision}
}

// grant is the reason why a pod may run on spot, and until when a successor may use it.
type grant struct {
	why   string
	until time.Time
}

// takeGrant removes and returns the oldest valid grant of a successor.
func (g *Assigner) takeGrant(s successor) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	valid := slices.DeleteFunc(g.grants[s], func(held grant) bool { return !held.until.After(now) })
	if len(valid) == 0 {
		delete(g.grants, s)
		return grant{}, false
	}
	if g.grants[s] = valid[1:]; len(valid) == 1 {
		delete(g.grants, s)
	}
	return valid[0], true
}

func (g *Assigner) giveGrant(s successor, given grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	maps.DeleteFunc(g.grants, func(_ successor, held []grant) bool { return !held[len(held)-1].until.After(now) })
	g.grants[s] = append(g.grants[s], given)
}

// relieve deletes the pods of a revision that have waited too long, because the API server does not
// allow a change of affinity on a pod without a gate. assigned is the number of live pods of the
// revision that require on-demand. relieve returns when another pod may have waited long enough; 0
// for never.
func (g *Assigner) relieve(ctx context.Context, revision workload.OwnerKey, waiting []sibling, assigned int) (next time.Duration, err error) {
	lists := 0
	assigned += g.reassignedOf(revision)
	for _, s := range waiting {
		waited, ok := g.waitedFor(s.pod)
		if !ok {
			continue
		}
		why, since, after := g.replaceReason(s, waited, assigned)
		if why == "" {
			next = earlier(next, after)
			continue
		}
		if !isRecreated(s.pod) {
			if why == reassigned {
				continue
			}
			g.recordOnce(s.pod, spot.ReasonNoSuccessor, "The pod has waited for on-demand longer than its policy allows, but its affinity can no longer be changed, "+
				"and no controller would recreate it after a deletion")
			continue
		}
		if lists++; lists > maxEventLists {
			return earlier(next, time.Second), nil
		}
		starting, err := g.nodeStarting(ctx, s.pod)
		if err != nil {
			return next, err
		}
		if left := min(starting, g.settings.NodeStartup-since); left > 0 {
			next = earlier(next, left)
			continue
		}
		if err := g.replace(ctx, revision, s, why); err != nil {
			return next, err
		}
		return earlier(next, time.Second), nil // one at a time, because the successor counts too
	}
	return next, nil
}

// reassigned is a reason to replace a pod without a grant: the successor must require on-demand.
const reassigned = "reassigned"

// replaceReason returns the reason to replace a pod that has waited that long, and since when the
// reason applies. Without a reason, it returns after how much more waiting this may change; 0 for
// never.
func (g *Assigner) replaceReason(s sibling, waited time.Duration, assigned int) (why string, since, after time.Duration) {
	settings := s.settings
	if s.subject.Pod.Granted != decision.NotGranted || s.subject.Pod.OnlySpot || settings.WhenUnsatisfiable == decision.ScheduleAnyway {
		return "", 0, 0
	}
	if !s.subject.Pod.OnlyOnDemand {
		c := g.settings.Labels.choose(s.subject, settings, facts{assigned: assigned})
		switch {
		case c.assigned != decision.AssignedOnDemand || s.subject.Pod.Assigned == decision.AssignedOnDemand:
			return "", 0, 0 // or its affinity cannot express it, and neither could its successor's
		case !g.assignsSuccessors(s.pod):
			return "", 0, time.Minute
		case waited >= reassignAfter:
			return reassigned, waited - reassignAfter, 0
		}
		return "", 0, reassignAfter - waited
	}
	if s.subject.Pod.Assigned != decision.AssignedOnDemand {
		return "", 0, 0 // the affinity of its user, which the controller must not loosen
	}
	if settings.FallbackAfter != decision.Never {
		if waited >= settings.FallbackAfter {
			return spot.GrantedFallback, waited - settings.FallbackAfter, 0
		}
		after = settings.FallbackAfter - waited
	}
	if relief := settings.RolloutRelief; relief != decision.Never {
		switch {
		case waited < relief:
			after = earlier(after, relief-waited)
		case g.olderOnDemand(s.subject):
			return spot.GrantedRelief, waited - relief, 0
		default:
			after = earlier(after, max(relief, time.Second)) // older replicas may be bound there later
		}
	}
	return "", 0, after
}

// waitedFor returns how long no scheduler has found a node for the pod, since its last gate was
// removed. The transition time of the condition is useless, because the API server also counts the
// time with gates.
func (g *Assigner) waitedFor(pod *v1.Pod) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, known := g.waiting[pod.UID]
	return g.clock.Since(since), known
}

// reassignedOf returns the number of expected successors of pods that were deleted for
// reassignment.
func (g *Assigner) reassignedOf(revision workload.OwnerKey) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	left := slices.DeleteFunc(g.reassigned[revision], func(until time.Time) bool { return !until.After(now) })
	if len(left) == 0 {
		delete(g.reassigned, revision)
	} else {
		g.reassigned[revision] = left
	}
	return len(left)
}

// takeReassigned records that one of the expected successors exists.
func (g *Assigner) takeReassigned(revision workload.OwnerKey) {
	if g.reassignedOf(revision) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reassigned[revision] = g.reassigned[revision][1:]; len(g.reassigned[revision]) == 0 {
		delete(g.reassigned, revision)
	}
}

// isRecreated reports whether the pod's controller recreates it after a deletion without other
// effects. A Job may count the pod as failed.
func isRecreated(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return false
	}
	switch key := workload.KeyOf(pod.Namespace, ref); key.Group + "/" + key.Kind {
	case appsv1.GroupName + "/ReplicaSet", appsv1.GroupName + "/StatefulSet", v1.GroupName + "/ReplicationController":
		return true
	}
	return false
}

// assignsSuccessors reports whether a successor of the pod would be assigned: the controller has
// removed a gate in the namespace after the pod was created. Otherwise the admission policy may be
// missing, or the API server may refuse the controller's patches, and the successor would be in the
// same situation as the pod.
func (g *Assigner) assignsSuccessors(pod *v1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.releasedAt[pod.Namespace].After(pod.CreationTimestamp.Time)
}

// olderOnDemand reports whether an older revision of the pod's workload has pods on on-demand
// nodes.
func (g *Assigner) olderOnDemand(subject *workload.Subject) bool {
	older, err := g.owners.OlderRevisions(subject)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(older, func(revision workload.OwnerKey) bool {
		pods, err := g.live(revision)
		return err == nil && slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			return pod.Spec.NodeName != "" && g.nodes.onDemand(pod.Spec.NodeName)
		})
	})
}

// nodeStarting returns how much longer an autoscaler may need to start a node for the pod; 0 if
// none reported it recently. A user who can create such an event can only delay pods of the own
// namespace.
func (g *Assigner) nodeStarting(ctx context.Context, pod *v1.Pod) (time.Duration, error) {
	list, err := g.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String(), Limit: 100,
	})
	if apierrors.IsForbidden(err) {
		return g.settings.NodeStartup, nil // the right came with manifests/overlays/autoscaler, and went with it: a node may be starting
	}
	if err != nil {
		return 0, fmt.Errorf("listing the events of pod %s: %w", klog.KObj(pod), err)
	}
	var left time.Duration
	for i := range list.Items {
		if e := &list.Items[i]; slices.Contains(nodeStarts, e.Reason) {
			left = max(left, g.settings.NodeStartup-g.clock.Since(latest(e)))
		}
	}
	return left, nil
}

// latest returns when an event was last recorded, in either of the two event APIs.
func latest(e *v1.Event) time.Time {
	at := e.EventTime.Time
	for _, t := range []time.Time{e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

// replace deletes a pod that never ran, and gives its successor the grant. It does nothing if the
// pod has changed, for example because it was bound.
func (g *Assigner) replace(ctx context.Context, revision workload.OwnerKey, s sibling, why string) error {
	key := successorOf(revision, s)
	if why == reassigned {
		g.mu.Lock()
		g.reassigned[revision] = append(g.reassigned[revision], g.clock.Now().Add(grantFor))
		g.mu.Unlock()
	} else {
		// Grant before the deletion: the successor may exist before the API server answers.
		g.giveGrant(key, grant{why, g.clock.Now().Add(grantFor)})
	}
	err := g.client.CoreV1().Pods(s.pod.Namespace).Delete(ctx, s.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &s.pod.UID, ResourceVersion: &s.pod.ResourceVersion},
	})
	if err != nil {
		if why != reassigned {
			g.takeGrant(key)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("deleting unschedulable pod %s: %w", klog.KObj(s.pod), err)
	}
	replacedPods.WithLabelValues(why).Inc()
	note := "No on-demand node was found, and the pod's affinity cannot be loosened: its successor may run on spot (" + why + ")"
	if why == reassigned {
		note = "The pod waited without affinity that autoscalers can see: its successor requires on-demand"
	}
	g.recorder.Eventf(s.pod, nil, v1.EventTypeWarning, spot.ReasonReplacedPending, "Replace", "%s", note)
	klog.FromContext(ctx).Info("Deleted unschedulable pod", "pod", klog.KObj(s.pod), "why", why)
	return nil
}

// recordOnce records an event on a pod unless it was the last one recorded.
func (g *Assigner) recordOnce(pod *v1.Pod, reason, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reported[pod.UID] != reason {
		g.reported[pod.UID] = reason
		g.recorder.Eventf(pod, nil, v1.EventTypeWarning, reason, "Assign", "%s", note)
	}
}
