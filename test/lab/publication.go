package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Installation is the part of this project that a lab publishes as installed. The zero value is the
// scheduler and the controller, as in manifests/base.
type Installation struct {
	// AnyScheduler means that another scheduler places the pods.
	AnyScheduler bool
	// Gating means that the controller has the autoscaler mode. AnyScheduler includes it.
	Gating bool
}

// PublishConfiguration creates the shipped Deployments of the controller and, unless another
// scheduler places the pods, of the scheduler, scaled to 0, and the ConfigMaps that they mount. The
// lab runs these programs as processes, but kubectl spot finds their configuration as in any other
// cluster.
func (cp *ControlPlane) PublishConfiguration(ctx context.Context, installed Installation) error {
	controllerConfig, components := "config/controller-config.yaml", []string{"scheduler", "controller"}
	if installed.Gating || installed.AnyScheduler {
		controllerConfig = gatingConfig
	}
	if installed.AnyScheduler {
		components = components[1:]
	}
	for name, file := range map[string]string{
		"spot-aware-scheduler-config": "config/scheduler-config.yaml", "spot-controller-config": controllerConfig,
	} {
		data, err := os.ReadFile(filepath.Join(cp.Root, file))
		if err != nil {
			return fmt.Errorf("reading a configuration: %w", err)
		}
		configMap := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{filepath.Base(file): string(data)}}
		if _, err := cp.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating ConfigMap %s: %w", name, err)
		}
	}
	for _, component := range components {
		deployment, err := cp.shippedDeployment(component)
		if err != nil {
			return err
		}
		deployment.Spec.Replicas = new(int32(0))
		if _, err := cp.client.AppsV1().Deployments(metav1.NamespaceSystem).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating Deployment %s: %w", deployment.Name, err)
		}
	}
	return nil
}

// shippedDeployment returns the Deployment of a component of the manifests.
func (cp *ControlPlane) shippedDeployment(component string) (*appsv1.Deployment, error) {
	path := filepath.Join(cp.Root, "manifests", "components", component, "deployment.yaml")
	objects, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			deployment := &appsv1.Deployment{}
			return deployment, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
		}
	}
	return nil, fmt.Errorf("%s has no Deployment", path)
}
