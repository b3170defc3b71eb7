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
				b.charge(pod)
			}
		}
	}
	return b
}

// charge charges the eviction of a pod to its PodDisruptionBudget. It returns the UID of the
// PodDisruptionBudget and whether that refuses the eviction. If no PodDisruptionBudget selects the
// pod, or several do, the UID is empty and nothing is estimated. A pod that is not ready is not
// charged.
func (b *budgets) charge(pod *snapshot.Pod) (from types.UID, refused bool) {
	selecting := b.selecting(pod)
	if len(selecting) != 1 {
		return "", false
	}
	only := selecting[0]
	if _, healthy := pod.Ready(); !healthy {
		return only.uid, false
	}
	only.allowed--
	return only.uid, only.allowed < 0
}

// never returns why the PodDisruptionBudget of a pod never allows its eviction; "" if it may.
func (b *budgets) never(pod *snapshot.Pod) string {
	for _, one := range b.selecting(pod) {
		if one.never != "" {
			return one.never
		}
	}
	return ""
}

// selects reports whether a PodDisruptionBudget selects the pod.
func (b *budgets) selects(pod *snapshot.Pod) bool { return len(b.selecting(pod)) > 0 }

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
