package report

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// blocksAlways reports whether the PodDisruptionBudget blocks every eviction even if all pods are
// ready, with the setting that does so. A second replica of a single one is assumed to exist.
func blocksAlways(b *policyv1.PodDisruptionBudget, desired int) (setting string, blocks bool) {
	pods := max(desired, int(b.Status.ExpectedPods)) // it may select the pods of several workloads
	if desired == 1 {
		pods++
	}
	scaled := func(value *intstr.IntOrString) (int, bool) {
		if value == nil {
			return 0, false
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(value, pods, true) // as the disruption controller rounds
		return n, err == nil
	}
	if n, ok := scaled(b.Spec.MaxUnavailable); ok {
		return "maxUnavailable " + b.Spec.MaxUnavailable.String(), n == 0
	}
	if n, ok := scaled(b.Spec.MinAvailable); ok {
		return fmt.Sprintf("minAvailable %s of %d", b.Spec.MinAvailable, pods), n >= pods
	}
	return "", false
}

// findBudgetChanges finds what should change in the PodDisruptionBudgets. A Job needs none, because
// it retries. A single replica needs none before it has a sibling.
func (c *candidate) findBudgetChanges() {
	if c.w.Desired == 1 || c.subject.Workload.Batch != decision.NotBatch || c.DisruptionBudgetsUnknown {
		return
	}
	selecting := c.Snapshot.BudgetsOf(c.p)
	switch {
	case len(selecting) > 1:
		c.change(true, "keep one of its %d PodDisruptionBudgets: Kubernetes evicts no pod that several select", len(selecting))
	case len(selecting) == 1:
		status := &selecting[0].Status
		if status.ExpectedPods > 0 && status.DisruptionsAllowed == 0 {
			c.change(true, "PodDisruptionBudget %s allows no eviction now: %d of %d pods are healthy, %d must be",
				selecting[0].Name, status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy)
		}
	case !c.settings.Protect: // else the controller maintains one
		c.change(false, "add a PodDisruptionBudget, so that drains leave replicas available")
	}
}
