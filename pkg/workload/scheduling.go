package workload

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Unschedulable reports whether a scheduler has tried to schedule the pod and found no node.
func Unschedulable(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, isUnschedulable)
}

func isUnschedulable(c v1.PodCondition) bool {
	return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
}

// WaitingSince returns when an unschedulable pod was first found unschedulable, if the pod records
// it. A time after now counts as now. The transition time is exact unless the pod had scheduling
// gates: the API server then sets the condition when it creates the pod. The removal of a gate
// increases the generation, which begins at 1. Recorded times are in whole seconds and rounded up.
func WaitingSince(pod *v1.Pod, now time.Time) (time.Time, bool) {
	i := slices.IndexFunc(pod.Status.Conditions, isUnschedulable)
	if i < 0 {
		return time.Time{}, false
	}
	since := pod.Status.Conditions[i].LastTransitionTime.Time
	if pod.Generation != 1 {
		ungated, err := time.Parse(time.RFC3339, pod.Annotations[spot.WaitingSinceAnnotation])
		if err != nil {
			return time.Time{}, false
		}
		since = slices.MaxFunc([]time.Time{since, ungated}, time.Time.Compare)
	}
	return slices.MinFunc([]time.Time{since.Add(time.Second), now}, time.Time.Compare), true
}

// Nominated reports whether preemption has nominated a node for the pod, and the pod is not bound
// yet.
func Nominated(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" && Live(pod)
}

// OlderNominated reports whether a precedes b in the order of the nominated pods of one revision:
// the older pod first, then the lower UID. Each pod counts only the pods before it. Two pods
// therefore never wait for each other, for example after their budget has shrunk.
func OlderNominated(a, b *v1.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}

// SelectsNodesByName reports whether the pod's own affinity names its nodes by field, as in a
// DaemonSet. Such a pod fits on no other node.
func SelectsNodesByName(pod *v1.Pod) bool {
	return slices.ContainsFunc(requiredTerms(pod), func(term v1.NodeSelectorTerm) bool { return len(term.MatchFields) > 0 })
}

// gangLabel is the label with the name of the pod's PodGroup, a kind of scheduler-plugins.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// PodGroupOf returns the key of the pod's PodGroup as namespace/name, or "" if the pod has none.
func PodGroupOf(pod *v1.Pod) string {
	if name := pod.Labels[gangLabel]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}
