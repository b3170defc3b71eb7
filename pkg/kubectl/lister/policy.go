package lister

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

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
