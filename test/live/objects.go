package live

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// NewDeployment returns a Deployment of PodTemplate(name), changed by edits.
func NewDeployment(name string, replicas int, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	count := int32(replicas)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: PodTemplate(name),
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

// Annotated returns an edit that sets an annotation of the Deployment.
func Annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[key] = value }
}

// OnlyOn returns an edit that restricts the pods to nodes with this label.
func OnlyOn(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{key: value} }
}

// SpreadOver returns an edit that adds a hard topology spread constraint over a node label.
func SpreadOver(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: d.Spec.Selector})
	}
}

// Deploy creates a Deployment of PodTemplate(name), changed by edits.
func (s *Scenario) Deploy(name string, replicas int, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	d, err := s.Client.AppsV1().Deployments(s.Namespace).Create(s.Ctx, NewDeployment(name, replicas, edits...), metav1.CreateOptions{})
	s.Must(err)
	return d
}

// Deployment returns a Deployment.
func (s *Scenario) Deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := s.Client.AppsV1().Deployments(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
	s.Must(err)
	return d
}

// PatchDeployment changes a Deployment by a strategic merge.
func (s *Scenario) PatchDeployment(name, patch string) {
	s.Helper()
	deployments := s.Client.AppsV1().Deployments(s.Namespace)
	_, err := deployments.Patch(s.Ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// Scale sets the replicas of a Deployment.
func (s *Scenario) Scale(name string, replicas int) {
	s.Helper()
	s.PatchDeployment(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// SetImage sets the image of a Deployment, which starts a rollout.
func (s *Scenario) SetImage(name, image string) {
	s.Helper()
	s.PatchDeployment(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, "registry.invalid/"+image))
}

// Pods returns the live pods with the label app; see Pods.
func (s *Scenario) Pods(app string) ([]v1.Pod, error) {
	return Pods(s.Ctx, s.Client, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + app})
}

// IsReady reports whether the pod has the condition that it is ready.
func IsReady(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// Splits returns the splits of the live pods in the scenario's namespaces by their label app; see
// Splits.
func (s *Scenario) Splits() (map[string]Split, error) {
	count, all := s.CountSplits, map[string]Split{}
	if count == nil {
		count = Splits
	}
	for _, namespace := range append(s.Others, s.Namespace) {
		splits, err := count(s.Ctx, s.Client, namespace)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, splits)
	}
	return all, nil
}

// SplitOf returns the split of the live pods with this label app.
func (s *Scenario) SplitOf(app string) (Split, error) {
	splits, err := s.Splits()
	return splits[app], err
}

// HasSplit returns a check that the app has this split.
func (s *Scenario) HasSplit(app string, want Split) func() error {
	return s.HaveSplits(map[string]Split{app: want})
}

// HaveSplits returns a check that the apps have these splits.
func (s *Scenario) HaveSplits(want map[string]Split) func() error {
	return func() error {
		got, err := s.Splits()
		if err != nil {
			return err
		}
		for app, want := range want {
			if got[app] != want {
				return fmt.Errorf("%s: %+v, want %+v", app, got[app], want)
			}
		}
		return nil
	}
}

// HasReadySplit returns a check that the app has this split and that all bound pods are ready.
func (s *Scenario) HasReadySplit(app string, want Split) func() error {
	return s.HaveReadySplits(map[string]Split{app: want})
}

// HaveReadySplits returns a check that the apps have these splits and that all bound pods are
// ready.
func (s *Scenario) HaveReadySplits(want map[string]Split) func() error {
	haveSplits := s.HaveSplits(want)
	return func() error {
		if err := haveSplits(); err != nil {
			return err
		}
		for app, want := range want {
			if ready := s.Seen.Serving(app, nil); ready != want.OnDemand+want.Spot {
				return fmt.Errorf("%s: %+v, and %d are ready", app, want, ready)
			}
		}
		return nil
	}
}

// AddNodes creates nodes and waits until pods can be scheduled to them.
func (s *Scenario) AddNodes(nodes ...lab.NodeSpec) {
	s.Helper()
	if len(nodes) > 0 {
		s.Must(s.Plane.CreateNodes(s.Ctx, nodes...))
	}
}

// LoseNodes deletes nodes and their pods, like a reclaim without notice.
func (s *Scenario) LoseNodes(names ...string) {
	s.Helper()
	now := int64(0)
	for _, name := range names {
		s.Must(s.Client.CoreV1().Nodes().Delete(s.Ctx, name, metav1.DeleteOptions{}))
		s.Must(s.Client.CoreV1().Pods(s.Namespace).DeleteCollection(s.Ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}))
	}
}

// Node returns a node.
func (s *Scenario) Node(name string) *v1.Node {
	s.Helper()
	node, err := s.Client.CoreV1().Nodes().Get(s.Ctx, name, metav1.GetOptions{})
	s.Must(err)
	return node
}

// EditNode changes a node; see EditNode.
func (s *Scenario) EditNode(name string, edit func(*v1.Node)) {
	s.Helper()
	s.Must(EditNode(s.Ctx, s.Client, Soon, name, edit))
}

// CapacityOf returns the capacity type by the node's labels: lab.Spot or lab.OnDemand.
func CapacityOf(node *v1.Node) string {
	return cmp.Or(node.Labels[lab.CapacityLabel], node.Labels[lab.KarpenterCapacityLabel])
}

// MetricValue returns the sum of a process's metric over all series with these labels.
func (s *Scenario) MetricValue(p *lab.Process, name string, labels map[string]string) (int, error) {
	sum, err := Metric(s.Ctx, p, name, labels)
	return int(math.Round(sum)), err
}

// HasMetric returns a check that a metric of a process has this value; see MetricValue.
func (s *Scenario) HasMetric(p *lab.Process, want int, name string, labels map[string]string) func() error {
	return func() error {
		got, err := s.MetricValue(p, name, labels)
		if err == nil && got != want {
			err = fmt.Errorf("%s%v is %d, want %d", name, labels, got, want)
		}
		return err
	}
}

// Moved returns a check that `want` pods were moved by this method for this reason, and `all` pods
// in total.
func (s *Scenario) Moved(want, all int, method, reason string) func() error {
	const name = "spot_aware_scheduler_migrations_total"
	return func() error {
		gotAll, err := s.MetricValue(s.Controller, name, nil)
		if err != nil {
			return err
		}
		got, err := s.MetricValue(s.Controller, name, map[string]string{"method": method, "reason": reason, "outcome": "moved"})
		if err == nil && (got != want || gotAll != all) {
			err = fmt.Errorf("%d pods moved by %s for %s, and %d in all, want %d and %d", got, method, reason, gotAll, want, all)
		}
		return err
	}
}

// HasEvent returns a check that an object with this name prefix has an event with this reason and
// with this text in its note.
func (s *Scenario) HasEvent(object, reason, note string) func() error {
	return func() error {
		notes, err := s.Events(object, reason)
		if err == nil && !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, note) }) {
			err = fmt.Errorf("no event %s of %s contains %q; notes: %q", reason, object, note, notes)
		}
		return err
	}
}

// Events returns the notes of the events with this reason of the objects with this name prefix.
func (s *Scenario) Events(object, reason string) (notes []string, err error) {
	list, err := s.Client.EventsV1().Events(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return nil, err
	}
	for _, event := range list.Items {
		if strings.HasPrefix(event.Regarding.Name, object) {
			notes = append(notes, event.Note)
		}
	}
	return notes, nil
}

// KubectlSpot runs the built plugin and returns what it prints to standard output and standard
// error. Exit status 3 is no error: parts of the installation do not exist in the lab.
func (s *Scenario) KubectlSpot(args ...string) string {
	s.Helper()
	command := exec.CommandContext(s.Ctx, filepath.Join(s.Plane.Root, "bin", "kubectl-spot"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Plane.Kubeconfig)
	out, err := command.CombinedOutput()
	if err != nil && !strings.Contains(err.Error(), "exit status 3") {
		s.Fatalf("kubectl spot %q: %v\n%s", args, err, out)
	}
	return string(out)
}
