package lister

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// gateAdmission is the name of the objects of the manifests that make the API server add gates.
const gateAdmission = "spot-aware-scheduler-capacity"

// CheckUninstalled returns an error if a controller may still run at now, or if new pods still get
// gates. The error names the object that shows it, and the command to run. A Lease that was not
// renewed in time shows nothing.
func CheckUninstalled(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	namespace, err := FindNamespace(ctx, client)
	if err != nil {
		return err
	}
	deployments, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: controllerMount.labels})
	if err != nil {
		return err
	}
	if len(deployments.Items) > 0 {
		return fmt.Errorf("the controller is still installed: Deployment %s/%s exists; first run helm uninstall, or kubectl delete -k with your "+
			"overlay", namespace, deployments.Items[0].Name)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, leader.Controller, metav1.GetOptions{})
	switch {
	case err == nil && held(&lease.Spec, now):
		return fmt.Errorf("a controller still runs: %q renewed Lease %s/%s at %s; first stop it and wait for a minute, or, if it has ended, run "+
			"kubectl -n %s delete lease %s", *lease.Spec.HolderIdentity, namespace, lease.Name, renewedAt(&lease.Spec), namespace, lease.Name)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	v1, v1beta1 := client.AdmissionregistrationV1(), client.AdmissionregistrationV1beta1()
	_, stable := v1.MutatingAdmissionPolicyBindings().Get(ctx, gateAdmission, metav1.GetOptions{})
	_, beta := v1beta1.MutatingAdmissionPolicyBindings().Get(ctx, gateAdmission, metav1.GetOptions{})
	_, webhook := v1.MutatingWebhookConfigurations().Get(ctx, gateAdmission, metav1.GetOptions{})
	return cmp.Or(isGone("mutatingadmissionpolicybinding", stable), isGone("mutatingadmissionpolicybinding", beta),
		isGone("mutatingwebhookconfiguration", webhook))
}

// isGone returns an error unless err reports that the object gateAdmission does not exist, or that
// the API server does not have its kind.
func isGone(resource string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("new pods still get gates: first run kubectl delete %s %s", resource, gateAdmission)
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}
