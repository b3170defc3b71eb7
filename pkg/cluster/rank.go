package cluster

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
)

// CostAnnotation is on pods whose deletion cost is the controller's, and says what it made it: one that differs is the user's.
const CostAnnotation = "spot-aware-scheduler.io/deletion-cost"

// HasOurCost reports whether the deletion cost of the pod is the controller's: it stays, as one of the floor's, where its workload shrinks.
func (p *Pod) HasOurCost() bool {
	cost, ok := p.Annotations[v1.PodDeletionCost]
	return ok && cost == p.Annotations[CostAnnotation]
}

// ByRank orders the pods of a revision on one capacity type as the scheduler has counted them there: those that require on-demand, then those
// that the controller keeps, then the oldest, by name. As many as the floor has come first on on-demand; the controller moves and a scale-down
// takes the last. In the autoscaler mode those that require on-demand are the floor: an autoscaler may move every other one.
func ByRank(a, b *Pod) int {
	return cmp.Or(last(a, requiresOnDemand)-last(b, requiresOnDemand), last(a, (*Pod).HasOurCost)-last(b, (*Pod).HasOurCost),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func requiresOnDemand(p *Pod) bool { return p.Subject != nil && p.Subject.Pod.OnlyOnDemand }

// last returns 0 for a pod that has the property, and 1 for one that comes after those.
func last(p *Pod, has func(*Pod) bool) int {
	if has(p) {
		return 0
	}
	return 1
}
