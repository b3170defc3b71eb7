package interruption

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

func isSilence(a node.Announcement) bool { return a.Name == node.Silence }

// maxSilentPercent is the percentage of silent nodes above which the control plane is suspected.
// The node lifecycle controller uses the same value for a zone, and then hardly evicts from it
// (--unhealthy-zone-threshold of kube-controller-manager). Here it applies to the whole cluster,
// because a zone may consist of spot nodes only and be reclaimed.
const maxSilentPercent = 55 // percent

// kubelets counts the nodes whose kubelet has reported at least once, and the silent nodes among
// them. A node is silent long before it counts as gone, so nodes that become silent together are
// counted together.
type kubelets struct{ reported, silent int }

// silentLimit returns how many silent nodes may count as gone at a time: a tenth of all nodes, or
// two. Their pods are removed without regard to PodDisruptionBudgets, so a network failure, or a
// recovery node by node, must not cost every pod there. Kubernetes evicts the pods of the other
// silent nodes after minutes (tolerationSeconds), or another client deletes the Nodes.
func (k *kubelets) silentLimit() int {
	if k.silent == k.reported || k.silent > 2 && 100*k.silent >= maxSilentPercent*k.reported {
		return 0
	}
	return max(2, k.reported/10)
}

// limitSilence lets only silentLimit silent nodes count as gone: it removes the silence from the
// signals of all others. Nodes that already counted as gone continue to do so; then the longest
// silence decides.
func (p *planner) limitSilence(nodes []observedNode) {
	type silentNode struct {
		node    *observedNode
		counted bool // already in an earlier round
		since   time.Time
	}
	var all []silentNode
	for i := range nodes {
		n := &nodes[i]
		if at := slices.IndexFunc(n.signals, isSilence); at >= 0 {
			_, counted := n.state.Starts[node.Silence]
			all = append(all, silentNode{n, counted, n.signals[at].Since})
		}
	}
	slices.SortStableFunc(all, func(a, b silentNode) int {
		return cmp.Or(migration.TrueFirst(a.counted, b.counted), a.since.Compare(b.since))
	})
	for _, s := range all[min(p.kubelets.silentLimit(), len(all)):] {
		s.node.signals = slices.DeleteFunc(s.node.signals, isSilence)
	}
}

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
