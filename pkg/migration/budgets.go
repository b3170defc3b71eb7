package migration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
)

// budgets estimates which evictions PodDisruptionBudgets will allow. The API server decides; an estimate saves it questions that it would say
// no to, each of which costs it as much as an eviction.
type budgets struct {
	snapshot *cluster.Snapshot
	// byNamespace are the budgets with their selectors, read when first asked for.
	byNamespace map[string][]*allowance
	// of are the budgets that select the pods of a revision, by its UID: they have the same labels, but for what a release changes.
	of map[types.UID][]*allowance
}

// allowance is what a budget still allows.
type allowance struct {
	selector labels.Selector
	left     int32
}

// newBudgets returns what the budgets allow beyond the evictions that progress says are under way.
func newBudgets(s *cluster.Snapshot, progress Progress) *budgets {
	b := &budgets{snapshot: s, byNamespace: map[string][]*allowance{}, of: map[types.UID][]*allowance{}}
	if len(progress) > 0 {
		for _, pod := range s.Pods {
			if progress[pod.UID] == EvictPod {
				b.take(pod)
			}
		}
	}
	return b
}

// take takes the eviction of a pod from its budget, and reports whether there was one left to take. Where several budgets select the pod
// the API server's answer is not estimated.
func (b *budgets) take(pod *cluster.Pod) bool {
	selecting := b.selecting(pod)
	if len(selecting) != 1 {
		return true
	}
	selecting[0].left--
	return selecting[0].left >= 0
}

func (b *budgets) selecting(pod *cluster.Pod) (found []*allowance) {
	revision := pod.Revision
	if pod.ReleasedFrom != nil {
		revision = pod.ReleasedFrom
	}
	if revision != nil {
		if known, ok := b.of[revision.UID]; ok {
			return known
		}
	}
	for _, budget := range b.in(pod.Namespace) {
		if budget.selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	if revision != nil {
		b.of[revision.UID] = found
	}
	return found
}

func (b *budgets) in(namespace string) []*allowance {
	all, known := b.byNamespace[namespace]
	if !known {
		for _, budget := range b.snapshot.Budgets[namespace] {
			if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil { // else it selects nothing
				all = append(all, &allowance{selector, budget.Status.DisruptionsAllowed})
			}
		}
		b.byNamespace[namespace] = all
	}
	return all
}
