package migration

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// record tells of an action that the API server has done: on the pod, and what changes a workload on that too. Events on a workload name no
// pod, so that client-go makes one of many.
func (e *Executor) record(a Action) {
	pod, workload := a.Pod.Pod, workloadOf(a.Pod)
	tell := func(object runtime.Object, kind, reason, note string, args ...any) {
		if object != nil {
			e.recorder.Eventf(object, nil, kind, reason, string(a.Kind), note, args...)
		}
	}
	switch {
	case a.Kind == Forget:
		// Nobody need know: it was told when the pod was given back.
	case a.Kind == Release:
		tell(pod, v1.EventTypeNormal, kube.ReasonReleased, "Leaves when its replacement is ready (%s): %s", a.Reason, a.Why)
		tell(workload, v1.EventTypeNormal, kube.ReasonMoving, "Moves pods (%s): replacements start before they leave", a.Reason)
	case a.Kind == Restore:
		tell(pod, v1.EventTypeWarning, kube.ReasonRestored, "Stays after all: %s", a.Why)
		tell(workload, v1.EventTypeWarning, kube.ReasonRestored, "Pods stay after all (%s): %s", a.Reason, a.Why)
	case a.Kind == EvictPod:
		tell(pod, v1.EventTypeNormal, kube.ReasonEvicted, "Evicted (%s): %s", a.Reason, a.Why)
		if a.Way == Evict {
			tell(workload, v1.EventTypeNormal, kube.ReasonMoving, "Moves pods (%s): their replacements come after them", a.Reason)
		}
	case a.Way == Delete:
		tell(pod, v1.EventTypeWarning, kube.ReasonDeleted, "Deleted: %s", a.Why)
		tell(workload, v1.EventTypeWarning, kube.ReasonDeleted,
			"Pods are deleted (%s): their nodes go, and a budget cannot save them any more", a.Reason)
	default:
		tell(pod, v1.EventTypeNormal, kube.ReasonLeftover, "Deleted: %s", a.Why)
	}
}

// about is what the log says of an action: what is done to which pod, where it stands and what it belongs, or belonged, to.
func about(a Action) []any {
	values := []any{"pod", klog.KObj(a.Pod), "action", a.Kind, "reason", a.Reason, "way", a.Way}
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

// recordBlocked tells of an eviction that was refused.
func (e *Executor) recordBlocked(a Action, by outcome) {
	evictionsBlocked.WithLabelValues(string(by)).Inc()
	why := "its PodDisruptionBudget allows no eviction now"
	if by == barred {
		why = "several PodDisruptionBudgets match it, and Kubernetes evicts no such pod"
	}
	until := ""
	if !a.Deadline.IsZero() {
		until = ", until its node goes at " + a.Deadline.UTC().Format(time.RFC3339)
	}
	e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeWarning, kube.ReasonBlocked, string(a.Kind),
		"Stays for now, because %s; tried again%s", why, until)
}

// count counts a move that came to its end.
func (e *Executor) count(a Action) {
	outcome := moved
	switch {
	case a.Kind == Restore:
		outcome = undone
	case a.Kind == DeletePod && a.Way == Surge:
		outcome = abandoned
	}
	migrations.WithLabelValues(string(a.Way), string(a.Reason), outcome).Inc()
}

// workloadOf refers to what the pod belongs, or belonged, to; nil if that is nothing, or is not known.
func workloadOf(pod *cluster.Pod) runtime.Object {
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
	node *cluster.Node
	// since is when this process saw the signal first.
	since time.Time
	// occupied: pods that have to leave are still on it.
	occupied bool
}

// observeNodes measures how nodes are emptied, and counts the pods that one takes with it when it vanishes.
func (e *Executor) observeNodes(s *cluster.Snapshot) {
	now := e.clock.Now()
	there := map[types.UID]*cluster.Node{}
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
			ending := pod.DeletionTimestamp != nil // its replacement is there, or under way
			if pod.Node == nil && pod.Spec.NodeName == i.node.Name && !ending && kube.HasOpinion(pod.Pod) {
				lost++
			}
		}
		if lost > 0 {
			podsLost.Add(float64(lost))
			if !e.settings.DryRun {
				e.recorder.Eventf(i.node.Node, nil, v1.EventTypeWarning, kube.ReasonPodsLost, "Observe", "Vanished with %d pods on it", lost)
			}
		} else if i.occupied {
			evacuation.Observe(now.Sub(i.since).Seconds())
		}
	}
}

// observeOverdue reports, once for each, the pods that were moved and have not ended: they no longer count as under way.
func (e *Executor) observeOverdue(s *cluster.Snapshot) {
	if e.settings.DryRun {
		return
	}
	for _, pod := range s.Pods {
		if !pod.Overdue(s.Now) {
			continue
		}
		w := e.pods[pod.UID]
		if w == nil && pod.Release != nil { // released and removed by an earlier controller
			w = e.of(Action{Pod: pod})
		}
		if w == nil || pod.Release == nil && w.action.Kind != EvictPod && w.action.Kind != DeletePod || !w.tell("overdue") {
			continue
		}
		podsOverdue.Inc()
		e.recorder.Eventf(pod.Pod, nil, v1.EventTypeWarning, kube.ReasonOverdue, "Observe",
			"Moved, but still terminating a minute after its grace period: other moves do not wait for it")
	}
}

// occupied reports whether pods that have to leave the node are still on it.
func occupied(node *cluster.Node) bool {
	for _, pod := range node.Pods {
		if kube.HasOpinion(pod.Pod) {
			return true
		}
	}
	return false
}
