package interruption

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

func isSilence(a kube.Announcement) bool { return a.Name == kube.Silence }

// staysOnSilentNode reports whether a pod is not moved off a node of which nothing is known but
// that its kubelet is silent. The node may be back soon. A pod without a controller would be lost
// for good, and one that tolerates such a node for longer than a pod does by default was written to
// stay.
func staysOnSilentNode(pod *cluster.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil ||
		endures(pod.Pod, v1.TaintNodeUnreachable) || endures(pod.Pod, v1.TaintNodeNotReady)
}

// admittedTolerance is how long the admission plugin DefaultTolerationSeconds has every pod
// tolerate a node that is not ready or unreachable.
const admittedTolerance = 300 // seconds

// endures reports whether a pod tolerates a taint with the effect NoExecute for ever, or for longer
// than admission adds to every pod. Of several tolerations the shortest counts, as in Kubernetes.
func endures(pod *v1.Pod, key string) bool {
	taint := &v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute}
	tolerates := false
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.ToleratesTaint(klog.Background(), taint, false) {
			if t.TolerationSeconds != nil && *t.TolerationSeconds <= admittedTolerance {
				return false
			}
			tolerates = true
		}
	}
	return tolerates
}
