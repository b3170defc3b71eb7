package placement

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Hold has Admit refuse the nodes that wait for their capacity label to the state's pod, if a pod that must have on-demand waits and fits on
// them as far as can be told cheaply. It costs nothing if no node waits for its label. A pod whose affinity names its nodes has no
// other place, so nothing is held from it.
func (s *State) Hold(pod *v1.Pod, waiting *Waiting) {
	if len(s.Counter.settling) == 0 || !s.Plan.MayTakeSpot() || kube.NamesItsNodes(pod) {
		return
	}
	fits := waiting.fitsForOnDemand(pod.UID)
	for n := range s.Counter.settling {
		if !slices.ContainsFunc(fits, func(f *fit) bool { return f.on(n) }) {
			continue
		}
		if s.held == nil {
			s.held = map[*node]struct{}{}
		}
		s.held[n] = struct{}{}
	}
}

// Holds reports whether a node is held from the state's pod.
func (s *State) Holds() bool { return len(s.held) > 0 }

// mostShapes is how many kinds of waiting floor pods are compared with each node that waits for its label. Pods of one workload are of one
// kind, so this is far more than a cluster has, unless a tenant makes pods to slow the scheduler down. Then some are compared, no particular
// ones.
const mostShapes = 200

// floorPods are waiting pods that must have on-demand and ask the same of a node.
type floorPods struct {
	fit  *fit
	pods map[types.UID]struct{}
}

// shapeOf returns what a pod asks of a node, the same text for the same demands.
func shapeOf(pod *v1.Pod) string {
	var nodes *v1.NodeAffinity
	if pod.Spec.Affinity != nil {
		nodes = pod.Spec.Affinity.NodeAffinity
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	text, err := json.Marshal([]any{requests, pod.Spec.NodeSelector, nodes, pod.Spec.Tolerations})
	if err != nil { // no value of these types fails
		return string(pod.UID)
	}
	return string(text)
}

// addFloor and dropFloor keep w.floors. w.mu must be held.
func (w *Waiting) addFloor(entry *waiter) {
	if !entry.ForOnDemand {
		return
	}
	entry.shape = shapeOf(entry.pod)
	of := w.floors[entry.shape]
	if of == nil {
		of = &floorPods{fit: newFit(klog.Background(), entry.pod), pods: map[types.UID]struct{}{}}
		w.floors[entry.shape] = of
	}
	of.pods[entry.pod.UID] = struct{}{}
}

func (w *Waiting) dropFloor(entry *waiter) {
	of := w.floors[entry.shape]
	if of == nil {
		return
	}
	delete(of.pods, entry.pod.UID)
	if len(of.pods) == 0 {
		delete(w.floors, entry.shape)
	}
}

// fitsForOnDemand returns what the pods but one ask of a node that wait for on-demand because the policy keeps them off spot.
func (w *Waiting) fitsForOnDemand(except types.UID) (fits []*fit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.floors {
		if _, itself := of.pods[except]; itself && len(of.pods) == 1 {
			continue
		}
		if fits = append(fits, of.fit); len(fits) == mostShapes {
			break
		}
	}
	return fits
}

// heldKey stands for the nodes that are held, in place of an owner. No owner has it: the kind of an owner is not empty.
var heldKey kube.OwnerKey

// wakeHeldSoon has the pods tried again in a second that a node is held from, within the limits of WakeFor. Calls within that second count as
// one. w.mu must be held.
func (w *Waiting) wakeHeldSoon() {
	if len(w.byOwner[heldKey]) == 0 || w.heldSoon != nil {
		return
	}
	w.heldSoon = w.clock.AfterFunc(time.Second, func() {
		w.mu.Lock()
		w.heldSoon = nil
		w.mu.Unlock()
		// In a goroutine, because a clock may run the function while it is locked.
		go w.WakeFor(heldKey, func() func(Wait) bool { return func(Wait) bool { return true } })
	})
}
