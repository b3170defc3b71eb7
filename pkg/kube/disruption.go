package kube

import v1 "k8s.io/api/core/v1"

// doNotDisrupt are the pod annotations by which users ask Karpenter and the cluster autoscaler to leave a pod alone.
var doNotDisrupt = map[string]string{
	"karpenter.sh/do-not-disrupt":                    "true",
	"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}

// MayDisrupt reports whether a pod may be moved although it need not be: its annotations do not forbid it.
func MayDisrupt(pod *v1.Pod) bool {
	for key, value := range doNotDisrupt {
		if pod.Annotations[key] == value {
			return false
		}
	}
	return true
}
