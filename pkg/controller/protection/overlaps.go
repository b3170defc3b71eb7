package protection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// overlaps finds the selectors of other objects that select pods of a namespace's workloads.
type overlaps struct {
	namespace string
	// conflicts is, by workload, why it can have no budget: the first reason in alphabetical order,
	// so that it does not change from round to round.
	conflicts map[*snapshot.Workload]string
}

func findOverlaps(s *snapshot.Snapshot, namespace string) *overlaps {
	o := &overlaps{namespace: namespace, conflicts: map[*snapshot.Workload]string{}}
	var budgets workload.Selectors[string]
	for _, budget := range s.Budgets[namespace] {
		if !workload.ManagedDisruptionBudget(budget) {
			budgets.Add(workload.Selector(budget.Spec.Selector), budget.Name)
		}
	}
	var deployments workload.Selectors[*snapshot.Workload]
	start, _ := slices.BinarySearchFunc(s.Workloads, namespace, func(w *snapshot.Workload, namespace string) int {
		return cmp.Compare(w.Namespace, namespace)
	})
	for _, w := range s.Workloads[start:] {
		if w.Namespace != namespace {
			break
		}
		if w.Deployment == nil || !w.Settings.Protect {
			continue
		}
		if _, err := metav1.LabelSelectorAsSelector(w.Deployment.Spec.Selector); err != nil {
			o.add(w, "its selector is invalid: "+err.Error())
		} else if !deployments.Add(workload.Selector(w.Deployment.Spec.Selector), w) {
			o.add(w, "too many Deployments select by the same labels")
		}
	}
	first, _ := slices.BinarySearchFunc(s.Pods, namespace, func(pod *snapshot.Pod, namespace string) int {
		return cmp.Compare(pod.Namespace, namespace)
	})
	last := map[*snapshot.Workload]labels.Set{}
	for _, pod := range s.Pods[first:] {
		if pod.Namespace != namespace {
			break
		}
		// Released and terminating pods count, because a workload may have no other pods. Pods of
		// one revision may have different labels: some applications label their leader.
		w := migration.WorkloadOf(pod)
		if w == nil || last[w] != nil && maps.Equal(last[w], pod.Labels) {
			continue
		}
		last[w] = pod.Labels
		for _, budget := range budgets.Of(pod.Labels) {
			o.add(w, fmt.Sprintf("PodDisruptionBudget %s selects its pods, and the API server evicts no pod with two PodDisruptionBudgets", budget))
		}
		for _, by := range deployments.Of(pod.Labels) {
			if by != w {
				o.add(by, fmt.Sprintf("its selector also selects pods of %s %s", w.Kind, w.Name))
			}
		}
	}
	return o
}

// add records why a workload can have no budget.
func (o *overlaps) add(w *snapshot.Workload, why string) {
	if known, ok := o.conflicts[w]; !ok || why < known {
		o.conflicts[w] = why
	}
}
