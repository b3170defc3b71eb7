package interruption

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

func isSilence(a node.Announcement) bool { return a.Name == node.Silence }

// staysOnSilentNode reports whether a pod stays on a node whose only signal is its silent kubelet.
// The node may return soon. A pod without a controller would be lost. A pod that tolerates such a
// node for longer than the default is meant to stay.
func staysOnSilentNode(pod *snapshot.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil ||
		toleratesLonger(pod.Pod, v1.TaintNodeUnreachable) || toleratesLonger(pod.Pod, v1.TaintNodeNotReady)
}

// admittedTolerance is how long every pod tolerates a node that is not ready or unreachable, by
// default. The admission plugin DefaultTolerationSeconds adds these tolerations.
const admittedTolerance = 300 // seconds

// toleratesLonger reports whether a pod tolerates a taint with the effect NoExecute for ever, or
// for longer than the toleration that admission adds to every pod. If several tolerations match,
// the shortest counts, as in Kubernetes.
func toleratesLonger(pod *v1.Pod, key string) bool {
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
