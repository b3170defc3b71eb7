package protection

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// newBudget returns the PodDisruptionBudget of a Deployment. The garbage collector deletes it with
// the Deployment.
func newBudget(d *appsv1.Deployment, maxUnavailable intstr.IntOrString) *policyv1.PodDisruptionBudget {
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	// BlockOwnerDeletion requires the right to update the finalizers of Deployments
	owner.BlockOwnerDeletion = nil
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + workload.DisruptionBudgetSuffix,
			Labels:          map[string]string{spot.ProtectLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &maxUnavailable,
			Selector:       d.Spec.Selector,
			// Unready pods need no protection.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// Apply performs a change. It updates and deletes only the object that the change was planned for.
// It returns an error if that object is gone or if its name belongs to another object.
func (c *Change) Apply(ctx context.Context, client kubernetes.Interface) error {
	budgets, name := client.PolicyV1().PodDisruptionBudgets(c.Budget.Namespace), c.Budget.Name
	var err error
	switch c.Kind {
	case Create:
		_, err = budgets.Create(ctx, c.Budget, metav1.CreateOptions{})
	case Delete:
		err = budgets.Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(c.Budget.UID)))
	case Update:
		var body []byte
		// No resource version, because the disruption controller updates the status frequently.
		body, err = json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": c.Budget.UID},
			{"op": "replace", "path": "/spec", "value": c.Budget.Spec},
		})
		if err == nil {
			_, err = budgets.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("%s of PodDisruptionBudget %s: %w", c.Kind, klog.KObj(c.Budget), err)
	}
	return nil
}
