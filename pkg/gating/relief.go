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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// grantFor is how long a grant waits for the successor of a deleted pod. Its controller makes one within milliseconds, and after failures
// within seconds. If the leader dies in between, the successor waits anew.
const grantFor = time.Minute

// reassignAfter is how long a pod waits that does not require on-demand although the floor lacks one that does, before its successor is asked
// to. Such pods were let go while the controller did not run.
const reassignAfter = 30 * time.Second

// mostAsked is how many pods' events are listed at a time for one revision.
const mostAsked = 10

// The events by which autoscalers tell of a node that they start for a pod, or that they count on for it: Karpenter and the cluster autoscaler.
var nodeStarts = []string{"Nominated", "TriggeredScaleUp"}

// successor identifies who earns what a deleted pod has waited for: the next pod of its revision; of a StatefulSet that with its name.
type successor struct {
	revision kube.OwnerKey
	name     string
}

func successorOf(revision kube.OwnerKey, s sibling) successor {
	if s.subject.Pod.Workload.Ordered {
		return successor{revision, s.pod.Name}
	}
	return successor{revision: revision}
}

// grant is why a pod may take spot, and until when one may ask for it.
type grant struct {
	why   string
	until time.Time
}

// takeGrant returns the oldest grant of a successor, once.
func (g *Gater) takeGrant(s successor) (grant, bool) {
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

func (g *Gater) giveGrant(s successor, given grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	maps.DeleteFunc(g.grants, func(_ successor, held []grant) bool { return !held[len(held)-1].until.After(now) })
	g.grants[s] = append(g.grants[s], given)
}

// relieve deletes those of a revision's pods that wait in vain, because affinity cannot be loosened on a pod without a gate, nor tightened.
// assigned is how many live pods of the revision require on-demand. It returns after how long one more may have waited for long enough; 0 for
// never.
func (g *Gater) relieve(ctx context.Context, revision kube.OwnerKey, waiting []sibling, assigned int) (next time.Duration, err error) {
	asked := 0
	assigned += g.reassignedOf(revision)
	for _, s := range waiting {
		waited, ok := g.waitedFor(s.pod)
		if !ok {
			continue
		}
		why, since, after := g.earned(s, waited, assigned)
		if why == "" {
			next = earlier(next, after)
			continue
		}
		if !makesAgain(s.pod) {
			if why == reassigned {
				continue
			}
			g.tellOnce(s.pod, kube.ReasonNoSuccessor, "It waits for on-demand for longer than its policy wants, but its affinity cannot be changed any more, "+
				"and no controller would make it anew if it were deleted")
			continue
		}
		if asked++; asked > mostAsked {
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
		return earlier(next, time.Second), nil // one at a time: its successor counts, too
	}
	return next, nil
}

// reassigned is the reason to replace a pod that is not a grant: its successor is to require on-demand.
const reassigned = "reassigned"

// earned returns what a pod has earned by waiting that long, and since how long, or after how much more waiting that may change; 0 for never.
func (g *Gater) earned(s sibling, waited time.Duration, assigned int) (why string, since, after time.Duration) {
	settings := s.settings
	if s.subject.Pod.Granted != decision.NotGranted || s.subject.Pod.OnlySpot || settings.WhenUnsatisfiable == decision.ScheduleAnyway {
		return "", 0, 0
	}
	if !s.subject.Pod.OnlyOnDemand {
		c := g.settings.Labels.choose(s.subject, settings, facts{assigned: assigned})
		switch {
		case c.assigned != decision.AssignedOnDemand || s.subject.Pod.Assigned == decision.AssignedOnDemand:
			return "", 0, 0 // or its affinity cannot say so, and its successor's could not either
		case !g.gates(s.pod):
			return "", 0, time.Minute
		case waited >= reassignAfter:
			return reassigned, waited - reassignAfter, 0
		}
		return "", 0, reassignAfter - waited
	}
	if s.subject.Pod.Assigned != decision.AssignedOnDemand {
		return "", 0, 0 // its user's own affinity, which is nobody's to loosen
	}
	if settings.FallbackAfter != decision.Never {
		if waited >= settings.FallbackAfter {
			return kube.GrantedFallback, waited - settings.FallbackAfter, 0
		}
		after = settings.FallbackAfter - waited
	}
	if relief := settings.RolloutRelief; relief != decision.Never {
		switch {
		case waited < relief:
			after = earlier(after, relief-waited)
		case g.olderOnDemand(s.subject):
			return kube.GrantedRelief, waited - relief, 0
		default:
			after = earlier(after, max(relief, time.Second)) // older replicas may get there
		}
	}
	return "", 0, after
}

// waitedFor returns for how long no scheduler has found a node for the pod, since its last gate was removed. The API server counts a gate as
// waiting, so that the time of the condition says nothing.
func (g *Gater) waitedFor(pod *v1.Pod) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, known := g.waiting[pod.UID]
	return g.clock.Since(since), known
}

// reassignedOf returns how many successors of pods that were deleted to be reassigned are still to come.
func (g *Gater) reassignedOf(revision kube.OwnerKey) int {
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

// takeReassigned notes that one of these successors has come.
func (g *Gater) takeReassigned(revision kube.OwnerKey) {
	if g.reassignedOf(revision) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reassigned[revision] = g.reassigned[revision][1:]; len(g.reassigned[revision]) == 0 {
		delete(g.reassigned, revision)
	}
}

// makesAgain reports whether the pod's controller makes another one when it is deleted, and nothing else comes of it. A Job may count the pod as
// failed.
func makesAgain(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return false
	}
	switch key := kube.KeyOf(pod.Namespace, ref); key.Group + "/" + key.Kind {
	case appsv1.GroupName + "/ReplicaSet", appsv1.GroupName + "/StatefulSet", v1.GroupName + "/ReplicationController":
		return true
	}
	return false
}

// gates reports whether a successor of the pod would be assigned something: in its namespace the controller has removed a gate after it was
// made. Otherwise the admission policy may not be there, or something refuses what the controller writes, and the successor would be like the pod.
func (g *Gater) gates(pod *v1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.releasedAt[pod.Namespace].After(pod.CreationTimestamp.Time)
}

// olderOnDemand reports whether an older revision of the pod's workload has pods on on-demand nodes.
func (g *Gater) olderOnDemand(subject *kube.Subject) bool {
	older, err := g.owners.OlderRevisions(subject)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(older, func(revision kube.OwnerKey) bool {
		pods, err := g.live(revision)
		return err == nil && slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			return pod.Spec.NodeName != "" && g.nodes.onDemand(pod.Spec.NodeName)
		})
	})
}

// nodeStarting returns for how much longer an autoscaler may be starting a node for the pod; 0 if none said so lately. Whoever writes such an
// event for a pod lets that pod wait: its own tenant.
func (g *Gater) nodeStarting(ctx context.Context, pod *v1.Pod) (time.Duration, error) {
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

// latest returns when an event was recorded last, in whichever of the two APIs.
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

// replace deletes a pod that never ran, and has its successor take what it has earned. A pod that has changed in any way, for example because
// it was bound, is left alone.
func (g *Gater) replace(ctx context.Context, revision kube.OwnerKey, s sibling, why string) error {
	key := successorOf(revision, s)
	if why == reassigned {
		g.mu.Lock()
		g.reassigned[revision] = append(g.reassigned[revision], g.clock.Now().Add(grantFor))
		g.mu.Unlock()
	} else {
		// Before the deletion: the successor may be there before its answer.
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
		return fmt.Errorf("deleting pod %s, which waits in vain: %w", klog.KObj(s.pod), err)
	}
	replacedPods.WithLabelValues(why).Inc()
	note := "It waited for on-demand in vain, and its affinity could not be loosened: its successor may take spot (" + why + ")"
	if why == reassigned {
		note = "It waited without a word on its affinity that autoscalers would see: its successor requires on-demand"
	}
	g.recorder.Eventf(s.pod, nil, v1.EventTypeWarning, kube.ReasonReplacedPending, "Replace", "%s", note)
	klog.FromContext(ctx).Info("Deleted a pod that waited in vain", "pod", klog.KObj(s.pod), "why", why)
	return nil
}

// tellOnce records an event on a pod, unless it is the last that was recorded.
func (g *Gater) tellOnce(pod *v1.Pod, reason, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told[pod.UID] != reason {
		g.told[pod.UID] = reason
		g.recorder.Eventf(pod, nil, v1.EventTypeWarning, reason, "Assign", "%s", note)
	}
}
