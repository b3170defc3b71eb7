package placement

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Hold withholds unlabeled nodes from the state's pod. Admit then refuses a node that waits for its
// capacity label if a pod that needs on-demand capacity waits and roughly fits on the node. Hold is
// cheap if no node waits for its label. A pod whose affinity names its nodes has no alternative, so
// no node is withheld from it.
func (s *State) ReserveUnlabeled(pod *v1.Pod, waiting *WaitingPods) {
	if len(s.Counter.settling) == 0 || !s.Plan.AdmitsSpot() || workload.SelectsNodesByName(pod) {
		return
	}
	fits := waiting.fitsForOnDemand(pod.UID)
	for n := range s.Counter.settling {
		if !slices.ContainsFunc(fits, func(f *fit) bool { return f.matches(n) }) {
			continue
		}
		if s.reserved == nil {
			s.reserved = map[*nodeState]struct{}{}
		}
		s.reserved[n] = struct{}{}
	}
}

// Holds reports whether a node is withheld from the state's pod.
func (s *State) HasReserved() bool { return len(s.reserved) > 0 }

// maxShapes limits how many shapes of waiting floor pods are compared with each unlabeled node.
// All pods of a workload have one shape, so no ordinary cluster reaches the limit. It protects the
// scheduler against tenants that create pods to slow it down. Beyond the limit, arbitrary shapes
// are compared.
const maxShapes = 200

// floorPods are waiting pods that need on-demand capacity and have the same requirements for a
// node.
type floorPods struct {
	fit  *fit
	pods map[types.UID]struct{}
}

// shapeOf returns a text form of a pod's requirements for a node. Equal requirements have equal
// texts.
func shapeOf(pod *v1.Pod) string {
	var nodes *v1.NodeAffinity
	if pod.Spec.Affinity != nil {
		nodes = pod.Spec.Affinity.NodeAffinity
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	text, err := json.Marshal([]any{requests, pod.Spec.NodeSelector, nodes, pod.Spec.Tolerations})
	if err != nil { // unreachable: such values can always be marshaled
		return string(pod.UID)
	}
	return string(text)
}

// addFloor and dropFloor maintain w.floors. The caller must hold w.mu.
func (w *WaitingPods) addFloor(entry *waiter) {
	if !entry.ForOnDemand {
		return
	}
	entry.shape = shapeOf(entry.pod)
	group := w.floors[entry.shape]
	if group == nil {
		group = &floorPods{fit: newFit(klog.Background(), entry.pod), pods: map[types.UID]struct{}{}}
		w.floors[entry.shape] = group
	}
	group.pods[entry.pod.UID] = struct{}{}
}

func (w *WaitingPods) dropFloor(entry *waiter) {
	group := w.floors[entry.shape]
	if group == nil {
		return
	}
	delete(group.pods, entry.pod.UID)
	if len(group.pods) == 0 {
		delete(w.floors, entry.shape)
	}
}

// fitsForOnDemand returns the node requirements of the pods that wait for on-demand capacity
// because the policy keeps them off spot. It ignores the pod except.
func (w *WaitingPods) fitsForOnDemand(except types.UID) (fits []*fit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, group := range w.floors {
		if _, itself := group.pods[except]; itself && len(group.pods) == 1 {
			continue
		}
		if fits = append(fits, group.fit); len(fits) == maxShapes {
			break
		}
	}
	return fits
}

// heldKey represents the withheld nodes in maps whose keys are owners. It cannot equal the key of
// an owner, because an owner has a kind.
var reservedKey workload.OwnerKey

// wakeHeldSoon retries the pods that had a node withheld from them after one second, within the
// limits of WakeFor. Calls within that second count as one. The caller must hold w.mu.
func (w *WaitingPods) wakeHeldSoon() {
	if len(w.byOwner[reservedKey]) == 0 || w.reservedTimer != nil {
		return
	}
	w.reservedTimer = w.clock.AfterFunc(time.Second, func() {
		w.mu.Lock()
		w.reservedTimer = nil
		w.mu.Unlock()
		// Use a goroutine, because a clock may call the function while the clock is locked.
		go w.WakeFor(reservedKey, func() func(Wait) bool { return func(Wait) bool { return true } })
	})
}
