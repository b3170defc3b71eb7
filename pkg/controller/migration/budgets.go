package migration

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// budgets estimates which evictions the PodDisruptionBudgets will allow. The API server decides.
// The estimate avoids requests that it would refuse: a refusal costs it as much as an eviction.
type budgets struct {
	snapshot *snapshot.Snapshot
	// byNamespace caches the PodDisruptionBudgets of a namespace.
	byNamespace map[string]*workload.Selectors[*budget]
}

// budget is a PodDisruptionBudget with the number of evictions that it still allows.
type budget struct {
	uid     types.UID
	allowed int32
	// never is why it allows no eviction whatever becomes ready; "" if it may allow one.
	never string
}

// newBudgets returns what the PodDisruptionBudgets allow after the evictions that are in flight
// according to progress.
func newBudgets(s *snapshot.Snapshot, progress Progress) *budgets {
	b := &budgets{snapshot: s, byNamespace: map[string]*workload.Selectors[*budget]{}}
	if len(progress) > 0 {
		for _, pod := range s.Pods {
			if progress[pod.UID].InFlight == EvictPod {
				_, healthy := pod.Ready()
				charge(b.selecting(pod), healthy)
			}
		}
	}
	return b
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
		return only.uid, false
	}
	only.allowed--
	return only.uid, only.allowed < 0
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

// selecting returns the PodDisruptionBudgets that select a pod.
func (b *budgets) selecting(pod *snapshot.Pod) []*budget {
	selectors := b.byNamespace[pod.Namespace]
	if selectors == nil {
		selectors = &workload.Selectors[*budget]{}
		b.byNamespace[pod.Namespace] = selectors
		for _, pdb := range b.snapshot.Budgets[pod.Namespace] {
			one := &budget{uid: pdb.UID, allowed: pdb.Status.DisruptionsAllowed}
			c := meta.FindStatusCondition(pdb.Status.Conditions, policyv1.DisruptionAllowedCondition)
			if c != nil && c.Status == metav1.ConditionFalse && c.Reason == policyv1.SyncFailedReason {
				one.never = fmt.Sprintf("Kubernetes cannot count the pods of PodDisruptionBudget %s: %s", pdb.Name, refusal.Short(c.Message))
			}
			selectors.Add(workload.Selector(pdb.Spec.Selector), one)
		}
	}
	return selectors.Of(pod.Labels)
}
