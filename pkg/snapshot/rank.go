package snapshot

import (
	"cmp"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// HasControllerCost reports whether the controller wrote the deletion cost of the pod. Such a pod
// belongs to the floor, so a scale-down deletes it last.
func (p *Pod) HasControllerCost() bool {
	cost, ok := p.Annotations[v1.PodDeletionCost]
	return ok && cost == p.Annotations[spot.DeletionCostAnnotation]
}

// DeletionCost returns the deletion cost that the user gave the pod; 0 without a valid one. Pods
// with lower costs are disrupted before other pods of their workload.
func (p *Pod) DeletionCost() int {
	text := p.Annotations[v1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	// As in Kubernetes, a plus sign or a leading zero is invalid.
	if err != nil || text[0] == '+' || text[0] == '0' && text != "0" || p.HasControllerCost() {
		return 0
	}
	return int(cost)
}

// ByRank orders the pods of a revision on one capacity type in the order in which the scheduler
// counted them: pods that require on-demand, then pods whose deletion cost the controller wrote,
// then the oldest, then by name. On on-demand, the first pods are the floor, as many as it has.
// Moves and scale-downs start at the end of this order. In autoscaler mode, the pods that require
// on-demand are the floor, because an autoscaler may move every other pod.
func ByRank(a, b *Pod) int {
	return cmp.Or(TrueFirst(requiresOnDemand(a), requiresOnDemand(b)), TrueFirst(a.HasControllerCost(), b.HasControllerCost()),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func requiresOnDemand(p *Pod) bool { return p.Subject != nil && p.Subject.Pod.OnlyOnDemand }

// TrueFirst orders booleans, true before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
