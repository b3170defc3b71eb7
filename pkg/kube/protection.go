package kube

import policyv1 "k8s.io/api/policy/v1"

// ProtectLabel has the value "true" on the PodDisruptionBudgets that the controller creates for
// workloads that request protection. The controller changes and deletes budgets with this label.
// The scheduler deletes them while no controller is running.
const ProtectLabel = "spot-aware-scheduler.io/protect"

// OwnBudget reports whether the controller manages the PodDisruptionBudget.
func OwnBudget(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Labels[ProtectLabel] == "true"
}
