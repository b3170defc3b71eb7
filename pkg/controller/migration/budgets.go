package migration

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// budget is a PodDisruptionBudget with the number of evictions that it still allows, after those in
// flight and planned deletions. This is an estimate, because the API server decides. It avoids
// requests that the API server would refuse: a refusal costs it as much as an eviction.
type budget struct {
	*policyv1.PodDisruptionBudget
	allowed int32
	// never is why it allows no eviction whatever becomes ready; "" if it may allow one.
	never string
}

// charge charges the eviction of a pod to the only PodDisruptionBudget that selects it. It returns
// its UID and whether it refuses the eviction. If no PodDisruptionBudget selects the pod, or
// several do, the UID is empty and nothing is estimated. A pod that is not ready is not charged.
func charge(selecting []*budget, ready bool) (from types.UID, refused bool) {
	if len(selecting) != 1 {
		return "", false
	}
	only := selecting[0]
	if !ready {
		return only.UID, false
	}
	only.allowed--
	return only.UID, only.allowed < 0
}

// neverEvicted returns why a PodDisruptionBudget never allows the eviction of a pod that it
// selects; "" if they may.
func neverEvicted(selecting []*budget) string {
	for _, one := range selecting {
		if one.never != "" {
			return one.never
		}
	}
	return ""
}

func (p *planner) budgetsOf(pod *snapshot.Pod) (selecting []*budget) {
	for _, pdb := range p.snapshot.BudgetsOf(pod) {
		if p.budgets[pdb] == nil {
			one := &budget{PodDisruptionBudget: pdb, allowed: pdb.Status.DisruptionsAllowed}
			if message, failed := workload.SyncFailure(pdb); failed {
				one.never = fmt.Sprintf("Kubernetes cannot count the pods of PodDisruptionBudget %s: %s", pdb.Name, refusal.Short(message))
			}
			p.budgets[pdb] = one
		}
		selecting = append(selecting, p.budgets[pdb])
	}
	return selecting
}
