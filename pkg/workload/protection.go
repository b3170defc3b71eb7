package workload

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// ManagedDisruptionBudget reports whether the controller manages the PodDisruptionBudget.
func ManagedDisruptionBudget(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Labels[spot.ProtectLabel] == "true"
}
