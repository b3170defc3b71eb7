package extender

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// heldKinds returns the indices of the kinds of node that are held from the pod: those of nodes that wait for their capacity label and that
// a pod could use, as far as can be told cheaply, that waits for on-demand. It costs nothing if no node waits for its label.
func (d *deciding) heldKinds() map[int]bool {
	if len(d.index.settling) == 0 || !d.plan.MayTakeSpot() || kube.NamesItsNodes(d.pod) {
		return nil
	}
	var needs []need
	for _, name := range d.register.forOnDemand(d.pod.UID) {
		if pod, err := d.pods.Pods(name.Namespace).Get(name.Name); err == nil {
			needs = append(needs, newNeed(pod))
		}
	}
	held := map[int]bool{}
	for _, n := range d.index.settling {
		if !held[n.kind.index] {
			held[n.kind.index] = slices.ContainsFunc(needs, func(of need) bool { return of.fits(n.object) })
		}
	}
	return held
}

// mostFloors is how many waiting floors are compared with the nodes that wait for their label. Of more, some are compared, no particular ones:
// a tenant may make any number of pods.
const mostFloors = 200

// forOnDemand returns the pods that wait for on-demand because of the policy, but one: one of each revision, whose pods ask for the same.
func (r *register) forOnDemand(except types.UID) (names []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, revision := range r.byRevision {
		for uid, entry := range revision {
			if entry.forOnDemand && uid != except {
				names = append(names, entry.pod)
				break
			}
		}
		if len(names) == mostFloors {
			break
		}
	}
	return names
}

// need is what a pod asks of a node, as far as it can be told without knowing what is left of it.
type need struct {
	requests    v1.ResourceList
	tolerations []v1.Toleration
	affinity    nodeaffinity.RequiredNodeAffinity
}

func newNeed(pod *v1.Pod) need {
	return need{
		requests:    resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		tolerations: pod.Spec.Tolerations,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
	}
}

// fits reports whether the node would take the pod if it were empty.
func (n *need) fits(node *v1.Node) bool {
	for name, request := range n.requests {
		if allocatable := node.Status.Allocatable[name]; request.Cmp(allocatable) > 0 {
			return false
		}
	}
	_, kept := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, n.tolerations,
		func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }, true)
	if kept {
		return false
	}
	match, err := n.affinity.Match(node)
	return match && err == nil
}
