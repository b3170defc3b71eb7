package kube

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The pod annotations by which users ask Karpenter and the cluster autoscaler to leave a pod alone.
const (
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// safeVolumes names, separated by commas, the volumes whose data may be lost.
	safeVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
)

// MayDisrupt reports whether a pod may be moved at now although it need not be: its annotations do
// not forbid it.
func MayDisrupt(pod *v1.Pod, now time.Time) bool {
	return pod.Annotations[safeToEvict] != "false" && !protected(pod, now)
}

// protected reports whether the pod's do-not-disrupt annotation protects it at now. The rules are
// Karpenter's: "true" always does, a positive duration does until the pod has run for so long, also
// while it is not known since when it has run; any other value protects nothing.
func protected(pod *v1.Pod, now time.Time) bool {
	value := pod.Annotations[doNotDisrupt]
	if value == "true" {
		return true
	}
	d, err := time.ParseDuration(value)
	return err == nil && d > 0 && (pod.Status.StartTime == nil || now.Sub(pod.Status.StartTime.Time) < d)
}

// LosesLocalData reports whether a pod that is moved loses data that its node holds for it: it has
// a volume hostPath or emptyDir, and its annotations do not say that these may be lost. As to the
// cluster autoscaler, an emptyDir in memory holds none.
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
