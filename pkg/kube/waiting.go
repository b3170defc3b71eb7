package kube

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Unschedulable reports whether a scheduler has tried the pod and found no node.
func Unschedulable(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
}

// Nominated reports whether preemption has promised the pod a node, on which it is not yet.
func Nominated(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" && Live(pod)
}

// NominatedBefore orders nominated pods of one revision: the older one first, and at the same age that with the lower UID. Each counts only
// those before it, so that no two wait for each other, for example after their budget has shrunk.
func NominatedBefore(a, b *v1.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}

// NamesItsNodes reports whether the pod's own affinity names its nodes, as that of a DaemonSet's pod does: it has no other place.
func NamesItsNodes(pod *v1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(term v1.NodeSelectorTerm) bool { return len(term.MatchFields) > 0 })
}
