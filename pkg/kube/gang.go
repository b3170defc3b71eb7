package kube

import v1 "k8s.io/api/core/v1"

// gangLabel names the PodGroup of a pod, a kind of scheduler-plugins.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// GangOf returns the key of the pod's PodGroup, namespace/name; "" if it is in none.
func GangOf(pod *v1.Pod) string {
	if name := pod.Labels[gangLabel]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}
