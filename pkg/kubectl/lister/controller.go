package lister

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// Controller is what a cluster shows of the controller.
type Controller struct {
	// Settings are the settings of its planner: its configuration, or the default if it could not
	// be read, and what its leaders have passed on.
	Settings rebalance.Settings
	// Interruption is the section of its configuration, or the default.
	Interruption controller.Interruption
	// Began is the start of the leader's term; zero if it is unknown.
	Began time.Time
	// Inactive is why no controller moves pods; "" if one does, or if this is unknown.
	Inactive string
	// Gaps has what could not be read.
	Gaps []Gap
}

// clockSkew is by how much the clock of the user may be ahead of the controller's. A controller
// counts as running for so long after its Lease has expired.
const clockSkew = time.Minute

// ReadController returns the state of the controller at now. It returns an error only if the API
// server is unavailable.
func ReadController(ctx context.Context, client kubernetes.Interface, now time.Time) (*Controller, error) {
	config := controller.Default()
	c := &Controller{Settings: rebalance.Settings{Rebalance: config.Rebalance, Gating: config.Gating, Memory: &leader.Memory{}},
		Interruption: config.Interruption}
	namespace, err := FindNamespace(ctx, client)
	if err != nil {
		return nil, err
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, leader.Controller, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.Inactive = "no controller is running (Lease " + namespace + "/" + leader.Controller + " does not exist)"
		return c, nil
	case err == nil:
		c.readLease(lease, now)
	default:
		if err := c.gap(err, "whether a controller is running, and its pauses and failed moves, are unknown"); err != nil {
			return nil, err
		}
	}
	if err = c.readConfig(ctx, client, "the shipped configuration of the controller is assumed"); err != nil {
		return nil, err
	}
	return c, c.readNamespaces(ctx, client)
}

// AssumedGating is the section gating of a controller whose configuration is not known. It is
// enabled: a label opts in a pod, as a schedulerName does, whether or not a program runs.
func AssumedGating() controller.Gating {
	gating := controller.Default().Gating
	gating.Enabled = true
	return gating
}

// ReadSections returns the sections gating and interruption of the controller's configuration;
// AssumedGating, the default and a gap if it cannot be read. It returns an error only if the API
// server is unavailable.
func ReadSections(ctx context.Context, client kubernetes.Interface) (controller.Gating, controller.Interruption, []Gap, error) {
	c := &Controller{Settings: rebalance.Settings{Gating: AssumedGating()}, Interruption: controller.Default().Interruption}
	err := c.readConfig(ctx, client, "gating.enabled is assumed, because pods opt in with the label "+spot.OptInLabel)
	return c.Settings.Gating, c.Interruption, c.Gaps, err
}

// readConfig reads the configuration. consequence describes the information that is missing without
// it.
func (c *Controller) readConfig(ctx context.Context, client kubernetes.Interface, consequence string) error {
	found, err := readFirst(ctx, client, []configMount{controllerMount})
	if err == nil {
		var config *controller.SpotControllerConfiguration
		if config, err = controller.Read(found.Data); err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrNoConfiguration, found.From, err)
		} else if c.Settings.Rebalance, c.Settings.Gating, c.Interruption = config.Rebalance, config.Gating, config.Interruption; config.DryRun {
			c.Inactive = "the controller moves no pod (dryRun)"
		}
	}
	return c.gap(err, consequence)
}

// gap records that a part could not be read. It returns other errors.
func (c *Controller) gap(err error, consequence string) error {
	if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !errors.Is(err, ErrNoConfiguration) {
		return err
	}
	c.Gaps = append(c.Gaps, Gap{err, consequence})
	return nil
}

func (c *Controller) readLease(lease *coordinationv1.Lease, now time.Time) {
	c.Settings.Memory = leader.ReadMemory(lease)
	spec := &lease.Spec
	if spec.AcquireTime != nil {
		c.Began = spec.AcquireTime.Time
	}
	if !held(spec, now) {
		c.Inactive = fmt.Sprintf("no controller is running (Lease %s/%s was last renewed at %s)", lease.Namespace, leader.Controller,
			renewedAt(spec))
	}
}

func held(spec *coordinationv1.LeaseSpec, now time.Time) bool {
	valid := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	return ptr.Deref(spec.HolderIdentity, "") != "" && now.Sub(cmp.Or(spec.RenewTime, &metav1.MicroTime{}).Time) <= valid+clockSkew
}

func renewedAt(spec *coordinationv1.LeaseSpec) string {
	return cmp.Or(spec.RenewTime, &metav1.MicroTime{}).UTC().Format(time.RFC3339)
}

func (c *Controller) readNamespaces(ctx context.Context, client kubernetes.Interface) error {
	configured := c.Settings.Rebalance.NamespaceSelector
	selector, err := metav1.LabelSelectorAsSelector(configured)
	if configured == nil || err != nil || selector.Empty() {
		return err
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return c.gap(err, "which namespaces the controller's rebalance.namespaceSelector selects is unknown")
	}
	selected := map[string]bool{}
	for i := range namespaces.Items {
		selected[namespaces.Items[i].Name] = true
	}
	c.Settings.Selects = func(namespace string) bool { return selected[namespace] }
	return nil
}

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
