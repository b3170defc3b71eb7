package workload

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"

	policyv1 "k8s.io/api/policy/v1"
)

// OwnBudget reports whether the controller manages the PodDisruptionBudget.
func OwnBudget(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Labels[spot.ProtectLabel] == "true"
}
