package workload

import v1 "k8s.io/api/core/v1"

// gangLabel is the label with the name of the pod's PodGroup, a kind of scheduler-plugins.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// PodGroupOf returns the key of the pod's PodGroup as namespace/name, or "" if the pod has none.
func PodGroupOf(pod *v1.Pod) string {
	if name := pod.Labels[gangLabel]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}
