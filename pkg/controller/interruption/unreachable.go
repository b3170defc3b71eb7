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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func isUnreachable(a node.Announcement) bool { return a.Name == node.UnreachableKubelet }

// maxUnreachablePercent is the percentage of unreachable nodes above which the control plane is
// suspected. The node lifecycle controller uses the same value for a zone, and then hardly evicts
// from it (--unhealthy-zone-threshold of kube-controller-manager). Here it applies to the whole
// cluster, because a zone may consist of spot nodes only and be reclaimed.
const maxUnreachablePercent = 55 // percent

// kubelets counts the nodes whose kubelet has reported at least once, and the unreachable nodes
// among them. A node is unreachable long before it counts as gone, so nodes that become unreachable
// together are counted together.
type kubelets struct{ reported, unreachable int }

// unreachableLimit returns how many unreachable nodes may count as gone at a time: a tenth of all
// nodes, or two. Their pods are removed without regard to PodDisruptionBudgets, so a network
// failure, or a recovery node by node, must not cost every pod there. Kubernetes evicts the pods of
// the other unreachable nodes after minutes (tolerationSeconds), or another client deletes the
// Nodes.
func (k *kubelets) unreachableLimit() int {
	if k.unreachable == k.reported || k.unreachable > 2 && 100*k.unreachable >= maxUnreachablePercent*k.reported {
		return 0
	}
	return max(2, k.reported/10)
}

// limitUnreachable lets only unreachableLimit unreachable nodes count as gone: it removes that
// signal from the signals of all others. Nodes that already counted as gone continue to do so; then
// the longest time decides.
func (p *planner) limitUnreachable(nodes []observedNode) {
	var all []*observedNode
	for i := range nodes {
		if slices.ContainsFunc(nodes[i].signals, isUnreachable) {
			all = append(all, &nodes[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *observedNode) int {
		_, countedA := a.state.Starts[node.UnreachableKubelet]
		_, countedB := b.state.Starts[node.UnreachableKubelet]
		since := func(o *observedNode) time.Time { return o.signals[slices.IndexFunc(o.signals, isUnreachable)].Since }
		return cmp.Or(snapshot.TrueFirst(countedA, countedB), since(a).Compare(since(b)))
	})
	for _, n := range all[min(p.kubelets.unreachableLimit(), len(all)):] {
		n.signals = slices.DeleteFunc(n.signals, isUnreachable)
	}
}

// staysOnUnreachableNode reports whether a pod stays on a node whose only signal is its unreachable
// kubelet. The node may return soon. A pod without a controller would be lost. A pod that tolerates
// such a node for longer than the default is meant to stay.
func staysOnUnreachableNode(pod *snapshot.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil ||
		toleratesLonger(pod.Pod, v1.TaintNodeUnreachable) || toleratesLonger(pod.Pod, v1.TaintNodeNotReady)
}

// mayRunTwice reports whether the controller of a pod accepts another pod beside it: then the pod
// is replaced at once although nothing confirms that it has ended. Two pods of a StatefulSet must
// not run.
func mayRunTwice(pod *snapshot.Pod) bool {
	return pod.Revision != nil && pod.Revision.ReplicaSet != nil || workload.OfJob(pod.Pod)
}

// moveOffDeletedNodes adds moves of pods that mayRunTwice, because Kubernetes deletes them only
// after a minute. Released pods have already been replaced. Without DeleteAtDeadline, all pods
// wait.
func (p *planner) moveOffDeletedNodes(pods []*snapshot.Pod) {
	for _, pod := range pods {
		if p.Interruption.Enabled && p.Interruption.DeleteAtDeadline && pod.NodeDeleted && pod.Live() && p.mayMove(pod) &&
			mayRunTwice(pod) && !staysOnUnreachableNode(pod) {
			p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Interruption, Unreachable: true})
		}
	}
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
