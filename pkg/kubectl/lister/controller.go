package lister

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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

// configMount is a Deployment of the manifests that mounts the scheduler's configuration, and the
// flag that names the file.
type configMount struct{ labels, flag string }

// ReadConfiguration tries the configMounts in this order. If the extender replaces the scheduler,
// the scheduler has no Deployment.
var configMounts = []configMount{
	{"app.kubernetes.io/name=spot-aware-scheduler,app.kubernetes.io/component=scheduler", "--config="},
	{"app.kubernetes.io/name=spot-extender,app.kubernetes.io/component=extender", "--scheduler-config="},
	{"app.kubernetes.io/name=spot-controller,app.kubernetes.io/component=controller", "--scheduler-config="},
}

var controllerMount = configMount{configMounts[2].labels, configMounts[0].flag}

// Configuration is a configuration file with which a program in the cluster was started.
type Configuration struct {
	Data []byte
	// From describes where the configuration was found.
	From string
}

// FindNamespace returns the namespace of the installation, which the ClusterRoleBinding of the
// controller names. Without this object, or the right to read it, that is the default of the
// manifests.
func FindNamespace(ctx context.Context, client kubernetes.Interface) (string, error) {
	binding, err := client.RbacV1().ClusterRoleBindings().Get(ctx, leader.Controller, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return metav1.NamespaceSystem, nil
	case err != nil:
		return "", err
	}
	for i := range binding.Subjects {
		if namespace := binding.Subjects[i].Namespace; namespace != "" {
			return namespace, nil
		}
	}
	return metav1.NamespaceSystem, nil
}

// ErrNoConfiguration means that the cluster has no scheduler of this project, or that its
// Deployment has an unknown form.
var ErrNoConfiguration = errors.New("no configuration found")

// ReadConfiguration returns the configuration that the scheduler's Deployment mounts. If there is
// none, it uses that of the extender or the controller. It starts from the Deployment because the
// name of the ConfigMap ends in a hash, and older ConfigMaps may still exist. The error names the
// missing right or object.
func ReadConfiguration(ctx context.Context, client kubernetes.Interface) (Configuration, error) {
	return readFirst(ctx, client, configMounts)
}

func readFirst(ctx context.Context, client kubernetes.Interface, mounts []configMount) (Configuration, error) {
	namespace, err := FindNamespace(ctx, client)
	if err != nil {
		return Configuration{}, err
	}
	for _, m := range mounts {
		deployments, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: m.labels})
		if err != nil {
			return Configuration{}, err
		}
		if len(deployments.Items) > 0 {
			slices.SortFunc(deployments.Items, func(a, b appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
			return readMounted(ctx, client, &deployments.Items[0], m.flag)
		}
	}
	others := ""
	if len(mounts) > 1 {
		others = ", and no Deployment of the extender or the controller"
	}
	return Configuration{}, fmt.Errorf("%w: namespace %s has no Deployment with the labels %s%s", ErrNoConfiguration, namespace,
		mounts[0].labels, others)
}

// readMounted returns the configuration file that the flag of a Deployment names.
func readMounted(ctx context.Context, client kubernetes.Interface, deployment *appsv1.Deployment, flag string) (Configuration, error) {
	namespace := deployment.Namespace
	name, key, err := mountedConfiguration(deployment, flag)
	if err != nil {
		return Configuration{}, fmt.Errorf("reading the configuration of Deployment %s/%s: %w", namespace, deployment.Name, err)
	}
	configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Configuration{}, err
	}
	data, ok := configMap.Data[key]
	if !ok {
		return Configuration{}, fmt.Errorf("%w: ConfigMap %s/%s has no key %s, the file of the Deployment's flag %sFILE",
			ErrNoConfiguration, namespace, name, key, flag)
	}
	return Configuration{[]byte(data), fmt.Sprintf("ConfigMap %s/%s, key %s", namespace, name, key)}, nil
}

// mountedConfiguration returns the ConfigMap and the key of the file that the flag names.
func mountedConfiguration(deployment *appsv1.Deployment, flag string) (configMap, key string, err error) {
	pod := &deployment.Spec.Template.Spec
	for i := range pod.Containers {
		c := &pod.Containers[i]
		for _, arg := range slices.Concat(c.Command, c.Args) {
			file, ok := strings.CutPrefix(arg, flag)
			if !ok {
				continue
			}
			for _, mount := range c.VolumeMounts {
				if path.Dir(file) != path.Clean(mount.MountPath) {
					continue
				}
				for _, volume := range pod.Volumes {
					if volume.Name == mount.Name && volume.ConfigMap != nil {
						return volume.ConfigMap.Name, path.Base(file), nil
					}
				}
			}
			return "", "", fmt.Errorf("%w: no mounted ConfigMap contains the file of %s", ErrNoConfiguration, arg)
		}
	}
	return "", "", fmt.Errorf("%w: no container has the argument %sFILE", ErrNoConfiguration, flag)
}
