package rebalance

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// floorCost is the deletion cost of pods in the floor. The default cost is 0, so any positive
// number has the same effect.
const floorCost = "1000"

// Cost is a planned change of a pod's deletion cost.
type Cost struct {
	Pod *snapshot.Pod
	// Value is the new value of controller.kubernetes.io/pod-deletion-cost; "" removes the
	// controller's value.
	Value string
}

// DeletionCosts returns the pods that need a deletion cost and the pods that should lose the
// controller's cost, in the order of the workloads. With these costs, the scale-down of a managed
// workload whose controller obeys them removes spot replicas first and keeps the floor. The floor
// is the first pods by rank on on-demand of the newest revision. A pod that stays in the floor is
// written once.
//
// No pod gets a cost during a rollout or if the workload has no more replicas than its floor. Pods
// of an old revision keep their cost, so its scale-down spares them. If the user has set the cost
// of any pod of a workload, the user's order applies, and the controller's costs are removed.
//
// The cost of a pod that asked not to be disrupted (migration.Restore) is removed when the workload
// has no pod too many. If floors is false, no pod gets a cost.
func DeletionCosts(s *snapshot.Snapshot, floors bool) (costs []Cost) {
	for _, w := range s.Workloads {
		guard(w, func() { costs = append(costs, costsOf(w, floors, s.Now)...) })
	}
	return costs
}

func costsOf(w *snapshot.Workload, floors bool, now time.Time) (costs []Cost) {
	if w.StatefulSet != nil || w.RollingOut || len(w.Revisions) == 0 {
		return nil
	}
	keep, pods := map[types.UID]bool{}, w.Pods()
	if floors && ordersByCost(w) && w.InScope && !anyPod(w, hasUsersCost) {
		for _, p := range floorOf(w) {
			keep[p.UID] = true
			if !p.HasControllerCost() && w.Desired > w.Floor {
				costs = append(costs, Cost{p, floorCost})
			}
		}
	}
	for _, p := range pods {
		if _, marked := p.Annotations[spot.DeletionCostAnnotation]; marked && !keep[p.UID] &&
			(len(pods) <= w.Desired || workload.MayDisrupt(p.Pod, now)) {
			costs = append(costs, Cost{Pod: p})
		}
	}
	return costs
}

// ordersByCost reports whether a scale-down of the workload deletes the pods with the lowest
// deletion cost first.
func ordersByCost(w *snapshot.Workload) bool {
	kind := schema.FromAPIVersionAndKind(w.APIVersion, w.Kind).GroupKind()
	return w.HasReplicaSets() || slices.Contains(providers.DeletionCostControllers, kind)
}

// floorOf returns the pods that make up a workload's floor. There may be fewer than the floor.
func floorOf(w *snapshot.Workload) []*snapshot.Pod {
	newest := w.Revisions[len(w.Revisions)-1]
	pods := slices.DeleteFunc(slices.Clone(newest.Pods), func(p *snapshot.Pod) bool { return !runsOn(p, decision.OnDemand) })
	slices.SortStableFunc(pods, snapshot.ByRank)
	return pods[:min(w.Floor, len(pods))]
}

func hasUsersCost(p *snapshot.Pod) bool {
	_, ok := p.Annotations[v1.PodDeletionCost]
	return ok && !p.HasControllerCost()
}

// Patch returns the change of the pod. If the user has set a cost meanwhile, the API server rejects
// the patch with a conflict. The plan of a newer snapshot contains the change again if it is still
// needed.
func (c Cost) Patch() workload.PodPatch {
	annotations := map[string]*string{spot.DeletionCostAnnotation: nil}
	if c.Value != "" {
		annotations[spot.DeletionCostAnnotation], annotations[v1.PodDeletionCost] = &c.Value, &c.Value
	} else if c.Pod.HasControllerCost() {
		annotations[v1.PodDeletionCost] = nil
	}
	return workload.PodPatch{Annotations: annotations}
}
