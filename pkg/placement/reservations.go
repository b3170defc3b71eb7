package placement

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// reserveUnlabeled reserves unlabeled nodes for other pods, whose requirements are fits. Admit then
// refuses a node that waits for its capacity label if another pod roughly fits on the node. If the
// affinity of the state's pod names its nodes, the pod has no alternative, so no node is reserved.
func (s *State) reserveUnlabeled(fits []*workload.Requirements) {
	if len(fits) == 0 || !s.Plan.AdmitsSpot() || workload.SelectsNodesByName(s.Pod) {
		return
	}
	s.reserved = map[*nodeState]struct{}{}
	for n := range s.Counter.settling {
		if slices.ContainsFunc(fits, n.fits) {
			s.reserved[n] = struct{}{}
		}
	}
}

// HasReserved reports whether a node is reserved for pods other than the state's pod.
func (s *State) HasReserved() bool { return len(s.reserved) > 0 }

// maxShapes limits how many shapes of waiting pods are compared with each unlabeled node.
// All pods of a workload have one shape, so no ordinary cluster reaches the limit. It protects the
// scheduler against tenants that create pods to slow it down. Beyond the limit, arbitrary shapes
// are compared.
const maxShapes = 200

// shapeOf returns a pod's requirements for a node as text. Equal requirements have equal
// texts.
func shapeOf(pod *v1.Pod) string {
	var nodes *v1.NodeAffinity
	if pod.Spec.Affinity != nil {
		nodes = pod.Spec.Affinity.NodeAffinity
	}
	text, _ := json.Marshal([]any{workload.RequestsOf(pod), pod.Spec.NodeSelector, nodes, pod.Spec.Tolerations}) // it has no error
	return string(text)
}

// onDemandFits returns the node requirements of the pods that wait for on-demand capacity
// because the policy keeps them off spot. It ignores the pod except. It returns the requirements of
// one pod of each shape. The caller must hold w.mu.
func (w *WaitingPods) onDemandFits(except types.UID) (fits []*workload.Requirements) {
	for _, pods := range w.onDemandShapes {
		for uid, entry := range pods {
			if uid != except {
				fits = append(fits, entry.requirements)
				break
			}
		}
		if len(fits) == maxShapes {
			break
		}
	}
	return fits
}

// reservedKey represents the reserved nodes in maps whose keys are owners. It cannot equal the key
// of an owner, because an owner has a kind.
var reservedKey workload.OwnerKey

// wakeReservedSoon retries, after one second, the pods with Wait.NodeReserved, within the limits of
// WakeOwned. Calls within that second count as one. The caller must hold w.mu.
func (w *WaitingPods) wakeReservedSoon() {
	if len(w.byOwner[reservedKey]) == 0 {
		return
	}
	w.soon(&w.reservedTimer, func() {
		// Use a goroutine, because a clock may call the function while the clock is locked.
		go w.WakeOwned(reservedKey, func() func(*v1.Pod, Wait) bool { return func(*v1.Pod, Wait) bool { return true } })
	})
}
