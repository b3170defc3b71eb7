package extender

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// withheldKinds returns the indices of the kinds of nodes that are withheld from the pod. A node
// that waits for its capacity label is withheld if a pod that waits for on-demand roughly fits on
// it. The check is cheap if no candidate waits for its label.
func (d *decisionState) withheldKinds() map[int]bool {
	settles := func(k *kind) bool {
		return d.candidatesByKind[k.index] > 0 && k.facts.Capacity.Source == decision.Settling
	}
	if !slices.ContainsFunc(d.index.kinds, settles) || !d.plan.AdmitsSpot() || workload.SelectsNodesByName(d.pod) {
		return nil
	}
	var waiting []requirements
	for _, name := range d.pending.forOnDemand(d.pod.UID) {
		if pod, err := d.pods.Pods(name.Namespace).Get(name.Name); err == nil {
			requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			waiting = append(waiting, requirements{workload.NewConstraints(pod, nil), requests})
		}
	}
	withheld := map[int]bool{}
	for _, n := range d.index.nodes {
		if settles(n.kind) && !withheld[n.kind.index] {
			withheld[n.kind.index] = slices.ContainsFunc(waiting, func(pod requirements) bool { return pod.fits(n.object) })
		}
	}
	return withheld
}

// maxWaitingRevisions is the number of waiting revisions that are compared with the nodes that wait
// for their label. Of more, an arbitrary subset is compared, because a tenant can create any number
// of pods.
const maxWaitingRevisions = 200

// forOnDemand returns the pods that wait for on-demand because of the policy, without except. It
// returns one pod per revision, because the pods of a revision have the same requirements.
func (r *pendingPods) forOnDemand(except types.UID) (names []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, revision := range r.byRevision {
		for uid, entry := range revision {
			if entry.forOnDemand && uid != except {
				names = append(names, entry.pod)
				break
			}
		}
		if len(names) == maxWaitingRevisions {
			break
		}
	}
	return names
}

// requirements are the requirements of a pod that do not depend on the free capacity of a node.
type requirements struct {
	workload.Constraints
	requests v1.ResourceList
}

// fits reports whether the pod would fit on the node if the node were empty.
func (n *requirements) fits(node *v1.Node) bool {
	for name, request := range n.requests {
		if allocatable := node.Status.Allocatable[name]; request.Cmp(allocatable) > 0 {
			return false
		}
	}
	return n.UntoleratedTaint(node, workload.ExcludesPods) == "" && n.Matches(node)
}
