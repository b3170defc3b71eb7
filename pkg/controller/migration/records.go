package migration

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// record emits the events for an action that the API server performed: on the pod, and also on the
// workload if the action affects it. Events on a workload contain no pod name, so that client-go
// aggregates them.
func (e *Executor) record(a Action) {
	pod, workload := a.Pod.Pod, workloadOf(a.Pod)
	emit := func(object runtime.Object, kind, reason, note string, args ...any) {
		if object != nil {
			e.recorder.Eventf(object, nil, kind, reason, string(a.Kind), note, args...)
		}
	}
	switch {
	case a.Kind == Forget:
		// The event Restored was already emitted when the controller restored the pod.
	case a.Kind == Release:
		emit(pod, v1.EventTypeNormal, spot.ReasonReleased, "Released, to be evicted when its replacement is ready (%s): %s", a.Reason, a.Why)
		emit(workload, v1.EventTypeNormal, spot.ReasonMoving, "Moving pods (%s): replacements start before the evictions", a.Reason)
	case a.Kind == Restore:
		emit(pod, v1.EventTypeWarning, spot.ReasonRestored, "Restored to its ReplicaSet: %s", a.Why)
		emit(workload, v1.EventTypeWarning, spot.ReasonRestored, "Restored released pods (%s): %s", a.Reason, a.Why)
	case a.Kind == EvictPod:
		emit(pod, v1.EventTypeNormal, spot.ReasonEvicted, "Evicted (%s): %s", a.Reason, a.Why)
		if a.Method == Evict {
			emit(workload, v1.EventTypeNormal, spot.ReasonMoving, "Moving pods (%s): replacements start after the evictions", a.Reason)
		}
	case a.Method == Delete:
		emit(pod, v1.EventTypeWarning, spot.ReasonDeleted, "Deleted: %s", a.Why)
		emit(workload, v1.EventTypeWarning, spot.ReasonDeleted,
			"Deleted pods (%s): no time was left to evict them before their nodes are reclaimed", a.Reason)
	default:
		emit(pod, v1.EventTypeNormal, spot.ReasonLeftover, "Deleted: %s", a.Why)
	}
}

// logValues returns the log fields of an action: the pod, its node and its current or former
// workload.
func logValues(a Action) []any {
	values := []any{"pod", klog.KObj(a.Pod), "action", a.Kind, "reason", a.Reason, "way", a.Method}
	if node := a.Pod.Node; node != nil {
		values = append(values, "node", node.Name, "capacityType", node.Facts.Capacity.Type)
	}
	workload := a.Pod.Workload
	if a.Pod.ReleasedFrom != nil {
		workload = a.Pod.ReleasedFrom.Workload
	}
	if workload != nil {
		values = append(values, "workload", klog.KRef(workload.Namespace, workload.Name), "desired", workload.Desired, "floor", workload.Floor)
	}
	if !a.Deadline.IsZero() {
		values = append(values, "deadline", a.Deadline)
	}
	return values
}

// recordBlocked emits the event for a refused eviction.
func (e *Executor) recordBlocked(a Action, by outcome) {
	evictionsBlocked.WithLabelValues(string(by)).Inc()
	why := "its PodDisruptionBudget currently allows no eviction"
	if by == barred {
		why = "several PodDisruptionBudgets select it, and Kubernetes evicts no such pod"
	}
	until := ""
	if !a.Deadline.IsZero() {
		until = " until its node is reclaimed at " + a.Deadline.UTC().Format(time.RFC3339)
	}
	e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeWarning, spot.ReasonBlocked, string(a.Kind),
		"Eviction refused, because %s. The controller retries%s", why, until)
}

// count counts a completed move.
func (e *Executor) count(a Action) {
	outcome := moved
	switch {
	case a.Kind == Restore:
		outcome = undone
	case a.Kind == DeletePod && a.Method == Surge:
		outcome = abandoned
	}
	migrations.WithLabelValues(string(a.Method), string(a.Reason), outcome).Inc()
}

// workloadOf returns the current or former owner of the pod, as the object of an event; nil if the
// owner does not exist or is unknown.
func workloadOf(pod *snapshot.Pod) runtime.Object {
	workload, revision := pod.Workload, pod.Revision
	if pod.ReleasedFrom != nil {
		workload, revision = pod.ReleasedFrom.Workload, pod.ReleasedFrom
	}
	switch {
	case workload == nil:
		return nil
	case workload.Deployment != nil:
		return workload.Deployment
	case workload.StatefulSet != nil:
		return workload.StatefulSet
	case revision.ReplicaSet != nil:
		return revision.ReplicaSet
	}
	for _, owner := range pod.OwnerReferences {
		if owner.UID == workload.Key.UID {
			return &v1.ObjectReference{
				APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: workload.Namespace, Name: workload.Name, UID: workload.Key.UID,
			}
		}
	}
	return nil
}

// interrupted is a node with a reclaim signal.
type interrupted struct {
	node *snapshot.Node
	// since is when this process first saw the signal.
	since time.Time
	// occupied reports whether pods that must be moved are still on the node.
	occupied bool
}

// observeNodes measures how long nodes take to become empty. It also counts the pods that were on a
// node when it vanished.
func (e *Executor) observeNodes(s *snapshot.Snapshot) {
	now := e.clock.Now()
	there := map[types.UID]*snapshot.Node{}
	for _, node := range s.Nodes {
		if node.Facts.Signal == decision.Reclaim {
			there[node.UID] = node
			if _, ok := e.nodes[node.UID]; !ok {
				e.nodes[node.UID] = &interrupted{node: node, since: now}
			}
		} else {
			delete(e.nodes, node.UID)
		}
	}
	for uid, i := range e.nodes {
		if node, ok := there[uid]; ok {
			occupied := occupied(node)
			if i.occupied && !occupied {
				evacuation.Observe(now.Sub(i.since).Seconds())
			}
			i.node, i.occupied = node, occupied
			continue
		}
		delete(e.nodes, uid)
		lost := 0
		for _, pod := range s.Pods {
			ending := pod.DeletionTimestamp != nil // its replacement exists or is being created
			if pod.Node == nil && pod.Spec.NodeName == i.node.Name && !ending && workload.PolicyApplies(pod.Pod) {
				lost++
			}
		}
		if lost > 0 {
			podsLost.Add(float64(lost))
			if !e.settings.DryRun {
				e.recorder.Eventf(i.node.Node, nil, v1.EventTypeWarning, spot.ReasonPodsLost, "Observe", "Vanished with %d pods on it", lost)
			}
		} else if i.occupied {
			evacuation.Observe(now.Sub(i.since).Seconds())
		}
	}
}

// observeOverdue reports, once each, moved pods that are still terminating. They no longer count as
// moves in flight.
func (e *Executor) observeOverdue(s *snapshot.Snapshot) {
	if e.settings.DryRun {
		return
	}
	for _, pod := range s.Pods {
		if !pod.Overdue(s.Now) {
			continue
		}
		w := e.pods[pod.UID]
		if w == nil && pod.Release != nil { // released and removed by an earlier controller
			w = e.workFor(Action{Pod: pod})
		}
		if w == nil || pod.Release == nil && w.action.Kind != EvictPod && w.action.Kind != DeletePod || !w.firstTime("overdue") {
			continue
		}
		podsOverdue.Inc()
		e.recorder.Eventf(pod.Pod, nil, v1.EventTypeWarning, spot.ReasonOverdue, "Observe",
			"Moved, but still terminating a minute after its grace period; other moves do not wait for it")
	}
}

// occupied reports whether pods that must be moved are still on the node.
func occupied(node *snapshot.Node) bool {
	for _, pod := range node.Pods {
		if workload.PolicyApplies(pod.Pod) {
			return true
		}
	}
	return false
}
