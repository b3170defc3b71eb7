package report

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// required returns how many of a number of pods a PodDisruptionBudget keeps available, with its
// setting. It returns false if the budget is invalid.
func required(b *policyv1.PodDisruptionBudget, pods int) (n int, setting string, ok bool) {
	value, name := b.Spec.MinAvailable, "minAvailable"
	if b.Spec.MaxUnavailable != nil {
		value, name = b.Spec.MaxUnavailable, "maxUnavailable"
	}
	if value == nil {
		return 0, "", false
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, pods, true) // as the disruption controller rounds
	if b.Spec.MaxUnavailable != nil {
		n = max(0, pods-n)
	}
	return n, name + " " + value.String(), err == nil
}

// requiredByBudget returns how many replicas of a workload its PodDisruptionBudgets keep available;
// 0 without one. A budget that selects pods of other workloads too requires no number of this one.
func (v *View) requiredByBudget(w *snapshot.Workload) (most int) {
	pods := w.Pods()
	if len(pods) == 0 {
		return 0
	}
	for _, b := range v.Snapshot.BudgetsOf(pods[0]) {
		if n, _, ok := required(b, w.Desired); ok && int(b.Status.ExpectedPods) <= max(w.Desired, len(pods)) {
			most = max(most, n)
		}
	}
	return most
}

// needsBudget reports whether the pods should have a PodDisruptionBudget. A Job needs none, because
// it retries. For a single replica a budget either allows nothing or changes nothing.
func (c *candidate) needsBudget() bool {
	return c.subject.Workload.Batch == decision.NotBatch && c.w.Desired > 1
}

func (c *candidate) findBudgetChanges() {
	switch selecting := c.Snapshot.BudgetsOf(c.p); {
	case len(selecting) > 1:
		add(&c.changes, "keep one of its %d PodDisruptionBudgets: Kubernetes evicts no pod that several select", len(selecting))
	case len(selecting) == 1:
		budget, status := selecting[0], &selecting[0].Status
		pods := max(c.w.Desired, int(status.ExpectedPods)) // it may select the pods of several workloads
		if n, setting, ok := required(budget, pods); ok && n >= pods {
			add(&c.changes, "change PodDisruptionBudget %s, which blocks every eviction: %s of %d pods", budget.Name, setting, pods)
		} else if status.ExpectedPods > 0 && status.DisruptionsAllowed == 0 {
			add(&c.changes, "PodDisruptionBudget %s allows no eviction now: %d of %d pods are healthy, %d must be",
				budget.Name, status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy)
		}
	case !c.settings.Protect: // else the controller maintains one
		add(&c.changes, "add a PodDisruptionBudget, so that drains leave replicas available")
	}
}
