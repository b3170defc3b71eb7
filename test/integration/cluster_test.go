package integration

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The annotations that users write. The literal values detect an accidental change of the constants
// in the code.
const (
	minOnDemand       = "spot-aware-scheduler.io/min-on-demand"
	maxPerPool        = "spot-aware-scheduler.io/max-per-pool"
	whenUnsatisfiable = "spot-aware-scheduler.io/when-unsatisfiable"
	fallbackAfter     = "spot-aware-scheduler.io/fallback-after"
)

// Each pod requests one CPU, so a node has as many slots as CPUs.

// onDemand returns n on-demand nodes with the given number of slots each. They are named od-1, od-2
// and so on, and are spread over three zones.
func onDemand(n, slots int) []lab.NodeSpec { return live.OnDemand(n, slots) }

// spot returns n spot nodes with the given number of slots each. They are named spot-1, spot-2 and
// so on. They are spread over three zones, and so over three spot pools.
func spotNodes(n, slots int) []lab.NodeSpec { return live.Spot(n, slots) }

func nodes(prefix, capacity, instanceType string, n, slots int) []lab.NodeSpec {
	return live.Nodes(prefix, capacity, instanceType, n, slots)
}

// podTemplate returns the template of a pod of one slot that opts in and has the label app.
func podTemplate(app string) v1.PodTemplateSpec { return live.PodTemplate(app) }

// deploy creates a Deployment of podTemplate(name), modified by edits.
func (s *scenario) deploy(name string, replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: podTemplate(name),
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	d, err := client.AppsV1().Deployments(s.namespace).Create(s.ctx, d, metav1.CreateOptions{})
	s.must(err)
	return d
}

// annotated returns an edit that sets an annotation of the Deployment.
func annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[key] = value }
}

// split counts the pods of an app by capacity type.
type split struct{ onDemand, spot, waiting int }

// splitOf returns the split of the live pods with the label app; see splits.
func (s *scenario) splitOf(app string) (split, error) {
	splits, err := s.splits()
	return splits[app], err
}

// splits returns the split of all live pods by their label app. Only the project's own label
// defines the capacity type of a node.
func (s *scenario) splits() (map[string]split, error) {
	all, err := live.Splits(s.ctx, client, s.namespace)
	splits := map[string]split{}
	for app, at := range all {
		splits[app] = split{onDemand: at.OnDemand, spot: at.Spot, waiting: at.Waiting}
	}
	return splits, err
}

// pods returns the pods with the label app that are neither terminal nor terminating.
func (s *scenario) pods(app string) ([]v1.Pod, error) {
	return s.livePods(metav1.ListOptions{LabelSelector: "app=" + app})
}

func (s *scenario) livePods(options metav1.ListOptions) ([]v1.Pod, error) {
	return live.Pods(s.ctx, client, s.namespace, options)
}

// hasSplit returns a check that the app has this split.
func (s *scenario) hasSplit(app string, want split) func() error {
	return func() error {
		got, err := s.splitOf(app)
		if err == nil && got != want {
			err = fmt.Errorf("%s: %+v, want %+v", app, got, want)
		}
		return err
	}
}

// scale sets the replicas of a Deployment through the scale subresource.
func (s *scenario) scale(name string, replicas int32) {
	s.Helper()
	s.eventually(soon, func() error {
		scale, err := client.AppsV1().Deployments(s.namespace).GetScale(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = client.AppsV1().Deployments(s.namespace).UpdateScale(s.ctx, name, scale, metav1.UpdateOptions{})
		return err
	})
}
