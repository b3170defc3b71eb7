package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// floorCost is the deletion cost of a floor's pods. That of every other is 0, so any number above would do.
const floorCost = "1000"

// Cost is the deletion cost that a pod is to have.
type Cost struct {
	Pod *cluster.Pod
	// Value is what controller.kubernetes.io/pod-deletion-cost is to say; "": nothing.
	Value string
}

// DeletionCosts returns which pods are to get a deletion cost, and which to lose ours, in the order of the workloads, so that a scale-down of a
// Deployment of ours takes its spot replicas and leaves its floor: as many of its newest revision's pods on on-demand as the floor has, by
// their rank. A pod that stays in the floor is written to once.
//
// None gets one while the floor is all there is, or during a rollout: the scale-down of an old revision spares the pods that have one already.
// Where the user has set the cost of any pod of a workload, his order counts, and ours is taken off.
func DeletionCosts(s *cluster.Snapshot) (costs []Cost) {
	for _, w := range s.Workloads {
		costs = append(costs, costsOf(w)...)
	}
	return costs
}

func costsOf(w *cluster.Workload) (costs []Cost) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if w.Deployment == nil || w.RollingOut || len(w.Revisions) == 0 {
		return nil
	}
	keep := map[types.UID]bool{}
	if w.Ours && !anyPod(w, hasUsersCost) {
		for _, p := range floorOf(w) {
			keep[p.UID] = true
			if !p.HasOurCost() && w.Desired > w.Floor {
				costs = append(costs, Cost{p, floorCost})
			}
		}
	}
	for _, revision := range w.Revisions {
		for _, p := range revision.Pods {
			if _, marked := p.Annotations[cluster.CostAnnotation]; marked && !keep[p.UID] {
				costs = append(costs, Cost{Pod: p})
			}
		}
	}
	return costs
}

// floorOf returns the pods that make up a workload's floor, as far as there are as many.
func floorOf(w *cluster.Workload) []*cluster.Pod {
	newest := w.Revisions[len(w.Revisions)-1]
	pods := slices.DeleteFunc(slices.Clone(newest.Pods), func(p *cluster.Pod) bool { return !on(p, decision.OnDemand) })
	slices.SortStableFunc(pods, cluster.ByRank)
	return pods[:min(w.Floor, len(pods))]
}

func hasUsersCost(p *cluster.Pod) bool {
	_, ok := p.Annotations[v1.PodDeletionCost]
	return ok && !p.HasOurCost()
}

// Apply writes the cost, only on the very version of the pod that it was planned for, so that one that the user sets meanwhile stays. A
// conflict is an error like every other; the next plan, from a newer snapshot, says what is still to be done.
func (c Cost) Apply(ctx context.Context, client kubernetes.Interface) error {
	annotations := map[string]*string{cluster.CostAnnotation: nil}
	if c.Value != "" {
		annotations[cluster.CostAnnotation], annotations[v1.PodDeletionCost] = &c.Value, &c.Value
	} else if c.Pod.HasOurCost() {
		annotations[v1.PodDeletionCost] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.Pod.UID, "resourceVersion": c.Pod.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("deletion cost of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	if _, err := client.CoreV1().Pods(c.Pod.Namespace).Patch(ctx, c.Pod.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("deletion cost of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return nil
}
