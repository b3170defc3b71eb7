package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// DisruptionBudgetSuffix is the end of the name of a PodDisruptionBudget that the controller
// manages. The beginning is the name of its Deployment. A Deployment whose name is too long for the
// suffix could not name its ReplicaSets either.
const DisruptionBudgetSuffix = "-protected"

// ManagedDisruptionBudget reports whether the controller manages the PodDisruptionBudget: it has
// the label, or, if someone has removed the label, the name and the controller that the controller
// gives it.
func ManagedDisruptionBudget(budget *policyv1.PodDisruptionBudget) bool {
	owner := metav1.GetControllerOfNoCopy(budget)
	return budget.Labels[spot.ProtectLabel] == "true" ||
		owner != nil && IsDeployment(owner) && budget.Name == owner.Name+DisruptionBudgetSuffix
}

// SyncFailure reports whether Kubernetes cannot count the pods of the PodDisruptionBudget, and why.
// Such a PodDisruptionBudget allows no eviction, whatever becomes ready.
func SyncFailure(budget *policyv1.PodDisruptionBudget) (message string, failed bool) {
	c := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != policyv1.SyncFailedReason {
		return "", false
	}
	return c.Message, true
}
