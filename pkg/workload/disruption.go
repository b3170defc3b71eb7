package workload

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Users set these pod annotations to ask Karpenter and the cluster autoscaler not to evict a pod.
const (
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// safeVolumes is a comma-separated list of volumes whose data may be lost.
	safeVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
)

// MayDisrupt reports whether the pod's annotations permit a voluntary move at now.
func MayDisrupt(pod *v1.Pod, now time.Time) bool {
	return pod.Annotations[safeToEvict] != "false" && !DoNotDisrupt(pod, now)
}

// DoNotDisrupt reports whether the pod's do-not-disrupt annotation protects it at now. The rules
// are Karpenter's: "true" always protects. A positive duration protects until the pod has run for
// that long, and also while its start time is unknown. Any other value protects nothing.
func DoNotDisrupt(pod *v1.Pod, now time.Time) bool {
	value := pod.Annotations[doNotDisrupt]
	if value == "true" {
		return true
	}
	d, err := time.ParseDuration(value)
	return err == nil && d > 0 && (pod.Status.StartTime == nil || now.Sub(pod.Status.StartTime.Time) < d)
}

// Disrupted reports whether the pod has the condition DisruptionTarget.
func Disrupted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	})
}

// LosesLocalData reports whether a move of the pod loses data on its node: the pod has a hostPath
// or emptyDir volume, and its annotations do not permit the loss. As in the cluster autoscaler, an
// emptyDir in memory contains no such data.
func LosesLocalData(pod *v1.Pod) bool {
	if pod.Annotations[safeToEvict] == "true" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		local := v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumMemory
		if local && !slices.Contains(strings.Split(pod.Annotations[safeVolumes], ","), v.Name) {
			return true
		}
	}
	return false
}

// Occupies reports whether the loss of the node would be a loss of pod, which runs on it: the
// policy applies to the pod, and the pod is not terminating. On a cordoned node, terminating pods
// count as well: kubectl drain waits for them, so the node is not drained yet.
func Occupies(pod *v1.Pod, node *v1.Node) bool {
	return PolicyApplies(pod) && (Live(pod) || node.Spec.Unschedulable && pod.DeletionTimestamp != nil)
}
