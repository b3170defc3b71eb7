package execution

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// recordEvents emits the events for an action that the API server performed: on the pod, and also
// on the workload if the action affects it. Events on a workload contain no pod name, so that
// client-go aggregates them.
func (e *Executor) recordEvents(a migration.Action) {
	onPod := func(reason, note, why string) {
		e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeNormal, reason, string(a.Kind), note, a.Reason, why)
	}
	moving := func(note string) {
		if owner := ownerOf(a.Pod); owner != nil {
			e.recorder.Eventf(owner, nil, v1.EventTypeNormal, spot.ReasonMoving, string(a.Kind), "Moving pods (%s): %s", a.Reason, note)
		}
	}
	switch {
	case a.Kind == migration.Forget:
		// The event Restored was already emitted when the controller restored the pod.
	case a.Kind == migration.Release:
		onPod(spot.ReasonReleased, "Released, to be evicted when its replacement is ready (%s): %s", a.Why)
		moving("replacements start before the evictions")
	case a.Kind == migration.Restore:
		e.warn(a, spot.ReasonRestored, "Restored to its ReplicaSet: "+a.Why, fmt.Sprintf("Restored released pods (%s): %s", a.Reason, a.Why))
	case a.Kind == migration.EvictPod:
		onPod(spot.ReasonEvicted, "Evicted (%s): %s", a.Why+a.Record.String())
		if a.Method == migration.Evict {
			moving("replacements start after the evictions")
		}
	case a.Method == migration.Delete:
		cause := string(a.Removal().Cause)
		deletions.WithLabelValues(cause, fmt.Sprint(a.Record.BrokenBudget != ""), a.Record.State).Inc()
		e.warn(a, spot.ReasonDeleted, fmt.Sprintf("Deleted (%s): %s%s", cause, a.Why, a.Record.String()),
			fmt.Sprintf("Deleted pods (%s): %s", cause, a.Why))
	default:
		e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeNormal, spot.ReasonOrphan, string(a.Kind), "Deleted: %s", a.Why)
	}
}

func (e *Executor) reportDryRun(ctx context.Context, a migration.Action) {
	if a.Kind != migration.Stay && a.Kind != migration.Forget && e.workFor(a.Pod).firstReport(string(a.Kind)) {
		klog.FromContext(ctx).Info("Would perform action (dry run)", append(logValues(a), "message", a.Why)...)
		migrations.WithLabelValues(string(a.Method), string(a.Reason), dryRun).Inc()
	}
}

// reportStay reports once why a pod stays. If limits refuse its move, or the move is useless, it
// reports this at most once an hour for the workload, or for the workload and the node.
func (e *Executor) reportStay(ctx context.Context, a migration.Action) {
	e.workFor(a.Pod).stays = a.Why
	var on runtime.Object = a.Pod.Pod
	subject := a.Pod.UID
	if owner := ownerOf(a.Pod); owner != nil {
		subject = owner.UID
		if a.Limited != "" {
			on = owner
		}
	}
	reason, note, hourly := spot.ReasonNoRoom, "Stays on node "+a.Pod.Node.Name, ""
	switch {
	case a.Useless != "":
		reason, hourly = spot.ReasonUseless, string(subject+a.Pod.Node.UID)
	case a.Limited != "":
		reason, note, hourly = spot.ReasonLimitReached, fmt.Sprintf("Moves wait (%s)", a.Reason), string(subject)+string(a.Reason)
	case a.Reason == migration.Drain:
		reason, note = spot.ReasonNotReplacedFirst, fmt.Sprintf("Node %s is being drained", a.Pod.Node.Name)
	case a.Unconfirmed:
		reason = spot.ReasonUnconfirmed
	}
	if hourly != "" {
		if _, reported := e.hourly.Get(hourly); reported {
			return
		}
		e.hourly.Add(hourly, nil, time.Hour)
	} else if !e.workFor(a.Pod).firstReport(string(migration.Stay) + reason) {
		return
	}
	klog.FromContext(ctx).Info("Pod stays on its node", append(logValues(a), "message", a.Why)...)
	e.recorder.Eventf(on, nil, v1.EventTypeWarning, reason, "Stay", "%s: %s", note, a.Why)
}

// logValues returns the log fields of an action: the pod, its node and its current or former
// workload.
func logValues(a migration.Action) []any {
	values := []any{"pod", klog.KObj(a.Pod), "podUID", a.Pod.UID, "action", a.Kind, "cause", a.Removal().Cause, "reason", a.Reason,
		"method", a.Method, "node", a.Pod.Spec.NodeName}
	if node := a.Pod.Node; node != nil {
		values = append(values, "capacityType", node.Facts.Capacity.Type)
	}
	if workload := a.Pod.OwnWorkload(); workload != nil {
		values = append(values, "workload", klog.KRef(workload.Namespace, workload.Name), "desired", workload.Desired,
			"floor", workload.Floor, "ready", a.Record.Ready)
	}
	if !a.Deadline.IsZero() {
		values = append(values, "deadline", a.Deadline)
	}
	if a.Record.BrokenBudget != "" {
		values = append(values, "brokenBudget", a.Record.BrokenBudget)
	}
	return append(values, "replacement", a.Record.Replacement)
}

// warn emits a Warning for an action on its pod, and on its workload if it has a note for it.
func (e *Executor) warn(a migration.Action, reason, onPod, onWorkload string) {
	e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeWarning, reason, string(a.Kind), "%s", onPod)
	if owner := ownerOf(a.Pod); owner != nil && onWorkload != "" {
		e.recorder.Eventf(owner, nil, v1.EventTypeWarning, reason, string(a.Kind), "%s", onWorkload)
	}
}

// recordRefused emits the events for an action that a PodDisruptionBudget, a webhook or a policy
// refused.
func (e *Executor) recordRefused(a migration.Action, o outcome, by string, err error) {
	until := ""
	if !a.Deadline.IsZero() {
		until = " until its node is reclaimed at " + a.Deadline.UTC().Format(time.RFC3339)
	}
	reason, why, onWorkload := spot.ReasonRefused, refusal.Message(err), ""
	switch o {
	case refused:
		why = "its PodDisruptionBudget currently allows no eviction: " + why
	case blockedBySeveral:
		why = "several PodDisruptionBudgets select it, and Kubernetes evicts no such pod"
	default:
		o = denied
		onWorkload = fmt.Sprintf("Requests to %s pods (%s) are refused by %s. Correct it, or exempt the controller", a.Kind, a.Reason, by)
	}
	if a.Kind == migration.EvictPod {
		reason = spot.ReasonBlocked
		evictionsBlocked.WithLabelValues(string(o)).Inc()
	}
	e.warn(a, reason, fmt.Sprintf("Request to %s the pod refused: %s. The controller retries%s", a.Kind, why, until), onWorkload)
}

// reportObstacles reports once each what will delay the move of a pod for longer than its node
// lives.
func (e *Executor) reportObstacles(a migration.Action) {
	revision, w := a.Pod.OwnRevision(), e.workFor(a.Pod)
	if a.Unevictable != "" && w.firstReport("unevictable") {
		e.warn(a, spot.ReasonBlocked, "Its eviction will be refused: "+a.Unevictable, "")
	}
	if revision == nil || a.LastMoment.IsZero() {
		return
	}
	var minReady int32
	if rs, set := revision.ReplicaSet, revision.Workload.StatefulSet; rs != nil {
		minReady = rs.Spec.MinReadySeconds
	} else if set != nil {
		minReady = set.Spec.MinReadySeconds
	}
	left := a.LastMoment.Sub(e.clock.Now())
	if minReady > 0 && time.Duration(minReady)*time.Second > left && w.firstReport("short notice") {
		note := fmt.Sprintf("minReadySeconds is %d, which is longer than the notice of an interrupted node: "+
			"replacements are not available in time. Reduce minReadySeconds", minReady)
		e.warn(a, spot.ReasonShortNotice, note, note)
	}
}

// recordLost reports the pods that were on a node when it vanished, their workloads, and as far as
// known why they were not moved in time.
func (e *Executor) recordLost(n *interruptedNode, pods []*snapshot.Pod) {
	var whys []string
	for _, pod := range pods {
		state, replacement := migration.ReplacementOf(pod, e.clock.Now(), false)
		podsLost.WithLabelValues(state).Inc()
		of := (&migration.Action{Move: migration.Move{Pod: pod}}).Removal()
		why := fmt.Sprintf("%s/%s, replacement %s: %s", of.Namespace, of.Workload, replacement, e.workFor(pod).stays)
		whys = append(whys, strings.TrimSuffix(why, ": "))
	}
	slices.Sort(whys)
	why := refusal.Short(strings.Join(slices.Compact(whys), "; "))
	klog.Background().Info("Node vanished with pods on it", "node", n.node.Name, "pods", len(pods), "kubeletSilent", n.silent, "why", why)
	if !e.settings.DryRun {
		const note = "Vanished with %d pods on it (kubelet silent: %t): %s"
		e.recorder.Eventf(n.node.Node, nil, v1.EventTypeWarning, spot.ReasonPodsLost, "Observe", note, len(pods), n.silent, why)
	}
}

func (e *Executor) countMove(a migration.Action) {
	outcome := moved
	switch {
	case a.Kind == migration.Restore:
		outcome = restored
	case a.Kind == migration.DeletePod && a.Method == migration.Surge:
		outcome = abandoned
	}
	migrations.WithLabelValues(string(a.Method), string(a.Reason), outcome).Inc()
}

// ownerOf returns a reference to the current or former workload of the pod, for an event; nil if it
// is unknown or the pod itself.
func ownerOf(pod *snapshot.Pod) *v1.ObjectReference {
	w := pod.OwnWorkload()
	if w == nil || w.Kind == "Pod" {
		return nil
	}
	kind := w.Kind
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.UID == w.Key.UID {
		kind = ref.Kind // that of the object, also if it did not create the pod
	}
	return &v1.ObjectReference{APIVersion: w.APIVersion, Kind: kind, Namespace: w.Namespace, Name: w.Name, UID: w.Key.UID}
}
