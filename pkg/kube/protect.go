package kube

import policyv1 "k8s.io/api/policy/v1"

// ProtectLabel marks with the value "true" the PodDisruptionBudgets that the controller keeps for workloads that ask for protection. What
// bears it is changed and deleted by the controller, and deleted by the scheduler while no controller runs.
const ProtectLabel = "spot-aware-scheduler.io/protect"

// OwnBudget reports whether the controller keeps a PodDisruptionBudget.
func OwnBudget(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Labels[ProtectLabel] == "true"
}
