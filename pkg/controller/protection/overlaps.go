package protection

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// findConflicts returns why protected Deployments can have no budget: selectors of other objects
// select their pods, or their selectors select other pods. Each has the first reason in
// alphabetical order, which does not change from round to round.
func findConflicts(s *snapshot.Snapshot) map[*snapshot.Workload]string {
	conflicts := map[*snapshot.Workload]string{}
	add := func(w *snapshot.Workload, why string) {
		if known, ok := conflicts[w]; !ok || why < known {
			conflicts[w] = why
		}
	}
	budgets, deployments := map[string]*workload.Selectors[string]{}, map[string]*workload.Selectors[*snapshot.Workload]{}
	for _, w := range s.Workloads {
		if w.Deployment == nil || !w.Settings.Protect {
			continue
		}
		if deployments[w.Namespace] == nil {
			deployments[w.Namespace], budgets[w.Namespace] = &workload.Selectors[*snapshot.Workload]{}, &workload.Selectors[string]{}
			for _, budget := range s.Budgets[w.Namespace] {
				if !workload.ManagedDisruptionBudget(budget) {
					budgets[w.Namespace].Add(workload.Selector(budget.Spec.Selector), budget.Name)
				}
			}
		}
		if workload.Terms(w.Deployment.Spec.Selector) > workload.MaxTerms {
			add(w, fmt.Sprintf("its selector has more than %d terms", workload.MaxTerms))
		} else if _, err := metav1.LabelSelectorAsSelector(w.Deployment.Spec.Selector); err != nil {
			add(w, "its selector is invalid: "+err.Error())
		} else if !deployments[w.Namespace].Add(workload.Selector(w.Deployment.Spec.Selector), w) {
			add(w, "too many Deployments select by the same labels")
		}
	}
	last := map[*snapshot.Workload]labels.Set{}
	for _, pod := range s.Pods {
		if deployments[pod.Namespace] == nil {
			continue
		}
		// Released and terminating pods count, because a workload may have no other pods. Pods of
		// one revision may have different labels: some applications label their leader.
		w := pod.OwnWorkload()
		if w == nil || last[w] != nil && maps.Equal(last[w], pod.Labels) {
			continue
		}
		last[w] = pod.Labels
		for _, budget := range budgets[pod.Namespace].Of(pod.Labels) {
			add(w, fmt.Sprintf("PodDisruptionBudget %s selects its pods, and the API server evicts no pod with two PodDisruptionBudgets", budget))
		}
		for _, by := range deployments[pod.Namespace].Of(pod.Labels) {
			if by != w {
				add(by, fmt.Sprintf("its selector also selects pods of %s %s", w.Kind, w.Name))
			}
		}
	}
	return conflicts
}
