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

// ByRank orders the pods of a revision on one capacity type as the scheduler has counted them there: those that the controller keeps, then
// the oldest, by name. As many as the floor has come first on on-demand; the controller moves and a scale-down takes the last.
func ByRank(a, b *Pod) int {
	kept := func(p *Pod) int {
		if p.HasOurCost() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(kept(a), kept(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
