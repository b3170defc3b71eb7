package report

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// required returns how many of a number of pods a PodDisruptionBudget keeps available, with its
// setting. An invalid percentage is 0 %.
func required(b *policyv1.PodDisruptionBudget, pods int) (n int, setting string) {
	switch spec := &b.Spec; {
	case spec.MaxUnavailable != nil:
		n, _ = intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, pods, true) // as the disruption controller rounds
		return max(0, pods-n), "maxUnavailable " + spec.MaxUnavailable.String()
	case spec.MinAvailable != nil:
		n, _ = intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, pods, true)
		return n, "minAvailable " + spec.MinAvailable.String()
	}
	return 0, ""
}

// budgetsOf returns the PodDisruptionBudgets that select the newest pods of a workload, by name.
func (v *View) budgetsOf(w *snapshot.Workload) []*policyv1.PodDisruptionBudget {
	if pods := w.Pods(); len(pods) > 0 {
		return v.Snapshot.BudgetsOf(pods[len(pods)-1])
	}
	return nil
}

// requiredByBudget returns how many replicas of a workload its PodDisruptionBudgets require, 0
// without one, and which budget does. left returns how many replicas a workload of the budget has
// at least. share is its share of what the budget requires, rounded up. Unknown pods have theirs.
func (v *View) requiredByBudget(w *snapshot.Workload, left func(w *snapshot.Workload, share int) int) (most int, by string) {
	if v.selected == nil {
		v.selected = map[*policyv1.PodDisruptionBudget][]*snapshot.Workload{}
		for _, w := range v.Snapshot.Workloads {
			for _, b := range v.budgetsOf(w) {
				v.selected[b] = append(v.selected[b], w)
			}
		}
	}
	for _, b := range v.budgetsOf(w) {
		desired := 0
		for _, other := range v.selected[b] {
			desired += other.Desired
		}
		pods := max(1, desired, int(b.Status.ExpectedPods))
		n, setting := required(b, pods)
		share := func(of int) int { return (n*of + pods - 1) / pods }
		needed := n - share(pods-desired)
		for _, other := range v.selected[b] {
			if other != w {
				needed -= left(other, share(other.Desired))
			}
		}
		needed = max(needed, left(w, share(w.Desired)))
		if needed > most {
			most, by = needed, fmt.Sprintf("PodDisruptionBudget %s (%s of %d)", b.Name, setting, pods)
		}
	}
	return most, by
}

// needsBudget reports whether the pods should have a PodDisruptionBudget. A Job needs none, because
// it retries. For a single replica a budget either allows nothing or changes nothing.
func (c *candidate) needsBudget() bool {
	return c.subject.Workload.Batch == decision.NotBatch && c.w.Desired > 1
}

func (c *candidate) findBudgetChanges() {
	switch selecting := c.budgetsOf(c.w); {
	case len(selecting) > 1:
		add(&c.changes, "keep one of its %d PodDisruptionBudgets: Kubernetes evicts no pod that several select", len(selecting))
	case len(selecting) == 1:
		budget, status := selecting[0], &selecting[0].Status
		pods := max(c.w.Desired, int(status.ExpectedPods)) // it may select the pods of several workloads
		if n, setting := required(budget, pods); n >= pods {
			add(&c.changes, "change PodDisruptionBudget %s, which blocks every eviction: %s of %d pods", budget.Name, setting, pods)
		} else if status.ExpectedPods > 0 && status.DisruptionsAllowed == 0 {
			add(&c.changes, "PodDisruptionBudget %s allows no eviction now: %d of %d pods are healthy, %d must be",
				budget.Name, status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy)
		}
	case !c.settings.Protect: // else the controller maintains one
		add(&c.changes, "add a PodDisruptionBudget, so that drains leave replicas available")
	}
}
