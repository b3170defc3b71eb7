package migration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// budgets estimates which evictions PodDisruptionBudgets will allow. The API server decides; an estimate saves it questions that it would say
// no to, each of which costs it as much as an eviction.
type budgets struct {
	snapshot *cluster.Snapshot
	// byNamespace are the budgets with their selectors, read when first asked for.
	byNamespace map[string][]*budget
	// of are the budgets that select the pods of a ReplicaSet, by its key: they have the same labels, but for what a release changes.
	of map[kube.OwnerKey][]*budget
}

// budget is a PodDisruptionBudget, and what it still allows.
type budget struct {
	uid      types.UID
	name     string
	selector labels.Selector
	left     int32
}

// newBudgets returns what the budgets allow beyond the evictions that progress says are under way.
func newBudgets(s *cluster.Snapshot, progress Progress) *budgets {
	b := &budgets{snapshot: s, byNamespace: map[string][]*budget{}, of: map[kube.OwnerKey][]*budget{}}
	if len(progress) > 0 {
		for _, pod := range s.Pods {
			if progress[pod.UID] == EvictPod {
				b.take(pod)
			}
		}
	}
	return b
}

// take takes the eviction of a pod from its budget, and reports which that is and whether it had one left. Where no budget selects the pod,
// or several do and the answer is not estimated, it is empty. What is not ready is not charged.
func (b *budgets) take(pod *cluster.Pod) (from types.UID, allowed bool) {
	selecting := b.selecting(pod)
	if len(selecting) != 1 {
		return "", true
	}
	only := selecting[0]
	if _, healthy := ready(pod); !healthy {
		return only.uid, true
	}
	only.left--
	return only.uid, only.left >= 0
}

// selecting returns the budgets that select a pod.
func (b *budgets) selecting(pod *cluster.Pod) (found []*budget) {
	revision := pod.Revision
	if pod.ReleasedFrom != nil {
		revision = pod.ReleasedFrom
	}
	alike := revision != nil && revision.ReplicaSet != nil // a StatefulSet's pods have labels of their own
	if alike {
		if known, ok := b.of[revision.Key]; ok {
			return known
		}
	}
	for _, one := range b.in(pod.Namespace) {
		if one.selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, one)
		}
	}
	if alike {
		b.of[revision.Key] = found
	}
	return found
}

// in returns the budgets of a namespace.
func (b *budgets) in(namespace string) []*budget {
	all, known := b.byNamespace[namespace]
	if !known {
		for _, pdb := range b.snapshot.Budgets[namespace] {
			if selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err == nil { // else it selects nothing
				all = append(all, &budget{pdb.UID, pdb.Name, selector, pdb.Status.DisruptionsAllowed})
			}
		}
		b.byNamespace[namespace] = all
	}
	return all
}
