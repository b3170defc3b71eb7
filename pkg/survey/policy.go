package survey

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// mounter is a Deployment of the manifests that mounts the scheduler's configuration.
type mounter struct{ labels, flag string }

// mounters are asked in this order: where the extender stands in for the scheduler there is no Deployment of that.
var mounters = []mounter{
	{"app.kubernetes.io/name=spot-aware-scheduler,app.kubernetes.io/component=scheduler", "--config="},
	{"app.kubernetes.io/name=spot-extender,app.kubernetes.io/component=extender", "--scheduler-config="},
	{"app.kubernetes.io/name=spot-controller,app.kubernetes.io/component=controller", "--scheduler-config="},
}

// Configuration is the file that the scheduler in the cluster was started with.
type Configuration struct {
	Data []byte
	// From says where it was found.
	From string
}

// ErrNoConfiguration is the error where the cluster has no scheduler of ours, or one that is set up in a way that is not known here.
var ErrNoConfiguration = errors.New("no configuration found")

// ReadConfiguration returns the configuration that the scheduler's Deployment mounts, or where there is none the extender's or the
// controller's: the name of its ConfigMap ends in a hash, and an older one may still be there. The error says what is missing, be it a right
// or the Deployment.
func ReadConfiguration(ctx context.Context, client kubernetes.Interface) (Configuration, error) {
	const namespace = metav1.NamespaceSystem
	for _, m := range mounters {
		deployments, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: m.labels})
		if err != nil {
			return Configuration{}, err
		}
		if len(deployments.Items) > 0 {
			slices.SortFunc(deployments.Items, func(a, b appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
			return readMounted(ctx, client, &deployments.Items[0], m.flag)
		}
	}
	return Configuration{}, fmt.Errorf("%w: namespace %s has no Deployment with the labels %s, nor the extender's or the controller's",
		ErrNoConfiguration, namespace, mounters[0].labels)
}

// readMounted returns the configuration that the flag of a Deployment names.
func readMounted(ctx context.Context, client kubernetes.Interface, deployment *appsv1.Deployment, flag string) (Configuration, error) {
	namespace := deployment.Namespace
	name, key, err := mountedConfiguration(deployment, flag)
	if err != nil {
		return Configuration{}, fmt.Errorf("the Deployment %s/%s: %w", namespace, deployment.Name, err)
	}
	configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Configuration{}, err
	}
	data, ok := configMap.Data[key]
	if !ok {
		return Configuration{}, fmt.Errorf("%w: ConfigMap %s/%s has no key %s, which the Deployment's %sFILE names",
			ErrNoConfiguration, namespace, name, key, flag)
	}
	return Configuration{[]byte(data), fmt.Sprintf("ConfigMap %s/%s, key %s", namespace, name, key)}, nil
}

// mountedConfiguration returns the ConfigMap, and the key in it, of the file that flag names.
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
			return "", "", fmt.Errorf("%w: its %s is in no mounted ConfigMap", ErrNoConfiguration, arg)
		}
	}
	return "", "", fmt.Errorf("%w: no container has the argument %sFILE", ErrNoConfiguration, flag)
}
