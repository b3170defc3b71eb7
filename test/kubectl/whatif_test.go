package kubectl

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// app is a workload of the test. Its pods have the label app with its name. floor is a literal, so
// that the test does not compare the program with itself.
type app struct {
	kind     string
	replicas int
	floor    int
	min      string // annotation min-on-demand
	other    bool   // scheduled by kube-scheduler
}

var apps = map[string]app{
	"web":    {"Deployment", 6, 1, "", false},
	"api":    {"Deployment", 6, 3, "50%", false},
	"single": {"Deployment", 1, 1, "", false},
	"loose":  {"Deployment", 2, 0, "0", false},
	"db":     {"StatefulSet", 3, 2, "2", false},
	"sum":    {"Job", 3, 0, "", false},
	"theirs": {"Deployment", 2, 0, "", true},
}

// TestWhatIf asks kubectl-spot which workloads would lose pods. It then deletes the nodes and
// compares the result.
func TestWhatIf(t *testing.T) {
	for name, test := range map[string]struct {
		lose []string
		lost func(*v1.Node) bool
	}{
		"all spot": {[]string{"all-spot"}, func(n *v1.Node) bool { return n.Labels[lab.CapacityLabel] == lab.Spot }},
		"a pool": {[]string{"pool=c5.xlarge/zone-a"}, func(n *v1.Node) bool {
			return n.Labels[lab.CapacityLabel] == lab.Spot && n.Labels[v1.LabelTopologyZone] == "zone-a"
		}},
		"a zone and a node": {[]string{"zone=zone-a", "node=od-2"}, func(n *v1.Node) bool {
			return n.Labels[v1.LabelTopologyZone] == "zone-a" || n.Name == "od-2"
		}},
		"all on-demand": {[]string{"node=od-1", "node=od-2", "node=od-3"}, func(n *v1.Node) bool { return n.Labels[lab.CapacityLabel] == lab.OnDemand }},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := start(t)
			var predicted struct {
				Workloads []struct {
					Kind, Name, Effect string
					Before, After      int
				}
			}
			args := []string{"what-if", "-n", namespace, "--scheduler-config", shippedConfig()}
			for _, lose := range test.lose {
				args = append(args, "--lose", lose)
			}
			answer(t, &predicted, args...)
			want := map[string]string{}
			for _, w := range predicted.Workloads {
				want[w.Kind+" "+w.Name] = fmt.Sprintf("%s, %d to %d", w.Effect, w.Before, w.After)
			}
			if got := deleteNodesAndPods(t, namespace, test.lost); len(got) == 0 {
				t.Error("no pod was lost with the nodes: the test checks nothing")
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what-if and the actual result differ (-predicted +actual):\n%s", diff)
			}
		})
	}
}

// start creates nodes and all apps. It returns the namespace after every pod has a node and all
// schedulers have stopped.
func start(t *testing.T) (namespace string) {
	t.Helper()
	ctx := t.Context()
	s := live.NewScenario(t, controlPlane, client, append(live.OnDemand(3, 4), live.Spot(6, 4)...)...)
	namespace = s.Namespace
	s.StartScheduler(lab.SchedulerOptions{})
	stock, err := controlPlane.StartStockScheduler(ctx)
	live.Must(t, err)
	for name, app := range apps {
		live.Must(t, app.create(t, namespace, name))
	}
	live.Must(t, live.Until(ctx, time.Minute, func() error {
		splits, err := live.Splits(ctx, client, namespace)
		if err != nil {
			return err
		}
		for name, app := range apps {
			if got := splits[name]; got.OnDemand+got.Spot != app.replicas {
				return fmt.Errorf("%s: %+v, want %d bound pods", name, got, app.replicas)
			}
		}
		return nil
	}))
	// No scheduler may replace lost pods before the test counts them. A scheduler that stops
	// gracefully releases its lease.
	for _, scheduler := range []*lab.Process{s.Scheduler, stock} {
		live.Must(t, scheduler.Stop())
	}
	return namespace
}

func (a app) create(t *testing.T, namespace, name string) error {
	template := live.PodTemplate(name)
	if a.other {
		template.Spec.SchedulerName = v1.DefaultSchedulerName
	}
	meta := metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	if a.min != "" {
		meta.Annotations["spot-aware-scheduler.io/min-on-demand"] = a.min
	}
	replicas, selector := ptr.To(int32(a.replicas)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	var err error
	switch a.kind {
	case "Deployment":
		_, err = client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
	case "StatefulSet":
		_, err = client.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{Replicas: replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
	case "Job":
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		template.Annotations = map[string]string{lab.RunTimeAnnotation: "1h"}
		_, err = client.BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: meta,
			Spec: batchv1.JobSpec{Parallelism: replicas, Completions: replicas, Template: template}}, metav1.CreateOptions{})
	}
	return err
}

// deleteNodesAndPods deletes nodes with their pods and without notice, as a cloud reclaims spot
// nodes. It returns the result for each app that lost pods. It counts the pods itself and uses the
// test's own table of floors.
func deleteNodesAndPods(t *testing.T, namespace string, lost func(*v1.Node) bool) map[string]string {
	t.Helper()
	ctx := t.Context()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	live.Must(t, err)
	gone := map[string]bool{}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; lost(node) {
			gone[node.Name] = true
			live.Must(t, client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}))
		}
	}
	before := boundPods(t, namespace)
	pods, err := live.Pods(ctx, client, namespace, metav1.ListOptions{})
	live.Must(t, err)
	for _, pod := range pods {
		if gone[pod.Spec.NodeName] {
			live.Must(t, client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		}
	}
	after := boundPods(t, namespace)
	actual := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(apps)) {
		app, left := apps[name], after[name]
		if left == before[name] {
			continue
		}
		falls := "KeepsFloor"
		switch {
		case left == 0 && app.floor == 0 && !app.other:
			falls = "ToZeroAllowed"
		case left == 0:
			falls = "ToZero"
		case left < app.floor:
			falls = "BelowFloor"
		}
		actual[app.kind+" "+name] = fmt.Sprintf("%s, %d to %d", falls, before[name], left)
	}
	return actual
}

// boundPods counts the pods of each app that have a node.
func boundPods(t *testing.T, namespace string) map[string]int {
	t.Helper()
	pods, err := live.Pods(t.Context(), client, namespace, metav1.ListOptions{})
	live.Must(t, err)
	counts := map[string]int{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			counts[pod.Labels["app"]]++
		}
	}
	return counts
}
