// Package live contains the shared code of the tests on a real control plane: one Scenario with its
// programs, namespace, nodes and workloads, a history of its pods, variants of the shipped
// configuration, polling, and cleanup.
package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Soon limits the time of an immediate reaction on a loaded machine.
const Soon = 20 * time.Second

// OnDemand returns n on-demand nodes with `slots` slots each, named od-1, od-2 and so on, over
// three zones.
func OnDemand(n, slots int) []lab.NodeSpec { return Nodes("od", lab.OnDemand, "m5.xlarge", n, slots) }

// Spot returns n spot nodes with `slots` slots each, named spot-1, spot-2 and so on, over three
// zones and therefore three pools.
func Spot(n, slots int) []lab.NodeSpec { return Nodes("spot", lab.Spot, "c5.xlarge", n, slots) }

// Nodes returns n nodes over three zones, named by the prefix and a number from 1. Each pod
// requests one CPU, so a node has as many slots as CPUs.
func Nodes(prefix, capacity, instanceType string, n, slots int) []lab.NodeSpec {
	specs := make([]lab.NodeSpec, n)
	for i := range specs {
		specs[i] = lab.NodeSpec{
			Name: fmt.Sprintf("%s-%d", prefix, i+1), Capacity: capacity, InstanceType: instanceType,
			Zone: fmt.Sprintf("zone-%c", 'a'+i%3), CPU: fmt.Sprint(slots), Memory: "64Gi", Pods: 110,
		}
	}
	return specs
}

// PodTemplate returns a pod of one slot that opts in. It has the label app and no grace period.
func PodTemplate(app string) v1.PodTemplateSpec {
	noGrace := int64(0)
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			SchedulerName:                 "spot-aware-scheduler",
			TerminationGracePeriodSeconds: &noGrace,
			Containers: []v1.Container{{
				Name: "c", Image: "registry.invalid/app",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}
}

// SchedulerConfig returns the shipped configuration of the scheduler, changed by edit unless that
// is nil.
func SchedulerConfig(root string, edit func(config map[string]any)) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, "config", "scheduler-config.yaml"))
	if err != nil || edit == nil {
		return data, err
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	edit(config)
	return yaml.Marshal(config)
}

// Split counts the pods of an app by the capacity type of their nodes. Waiting pods are not
// bound.
type Split struct{ OnDemand, Spot, Waiting int }

// Splits counts all live pods of a namespace by their label app. Only the project's own label
// makes a node a spot node.
func Splits(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]Split, error) {
	pods, err := Pods(ctx, client, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	isSpot := map[string]bool{}
	for _, node := range nodes.Items {
		isSpot[node.Name] = node.Labels[lab.CapacityLabel] == lab.Spot
	}
	splits := map[string]Split{}
	for _, pod := range pods {
		at := splits[pod.Labels["app"]]
		switch {
		case pod.Spec.NodeName == "":
			at.Waiting++
		case isSpot[pod.Spec.NodeName]:
			at.Spot++
		default:
			at.OnDemand++
		}
		splits[pod.Labels["app"]] = at
	}
	return splits, nil
}

// Pods returns the pods of a namespace that are neither terminal nor terminating.
func Pods(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) ([]v1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var live []v1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			live = append(live, pod)
		}
	}
	return live, nil
}

// Clear deletes the workloads of a namespace, the owners of pods first. It returns when no pod
// and no ReplicaSet is left. After five minutes it returns an error that names the remaining pods.
func Clear(ctx context.Context, client kubernetes.Interface, namespace string) error {
	now, background, all := int64(0), metav1.DeletePropagationBackground, metav1.ListOptions{}
	atOnce := metav1.DeleteOptions{GracePeriodSeconds: &now}
	apps, batch, core := client.AppsV1(), client.BatchV1(), client.CoreV1()
	for _, deleteAll := range []func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error{
		apps.Deployments(namespace).DeleteCollection, apps.ReplicaSets(namespace).DeleteCollection,
		apps.StatefulSets(namespace).DeleteCollection, apps.DaemonSets(namespace).DeleteCollection,
		batch.Jobs(namespace).DeleteCollection, core.ReplicationControllers(namespace).DeleteCollection,
	} {
		if err := deleteAll(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, all); err != nil {
			return err
		}
	}
	return Until(ctx, 5*time.Minute, func() error {
		if err := core.Pods(namespace).DeleteCollection(ctx, atOnce, all); err != nil {
			return err
		}
		pods, err := core.Pods(namespace).List(ctx, all)
		if err != nil {
			return err
		}
		sets, err := apps.ReplicaSets(namespace).List(ctx, all)
		if err == nil && len(pods.Items)+len(sets.Items) > 0 {
			var remaining []string
			for _, pod := range pods.Items {
				remaining = append(remaining, pod.Name)
			}
			err = fmt.Errorf("namespace %s still has %d ReplicaSets and the pods %v", namespace, len(sets.Items), remaining)
		}
		return err
	})
}

// Checks that list objects would take most of the CPU time of the live tests. So the pauses between
// the checks of one wait become longer, from firstPause to longestPause, and after a slow check the
// pause is several times as long as that check.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 200 * time.Millisecond
	pausePerTime = 4
)

// Until returns nil when check returns nil. It returns the last error of check after limit, or
// when ctx is done.
func Until(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for pause := firstPause; ; pause = min(pause*5/4, longestPause) {
		began := time.Now()
		err := check()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case time.Now().After(deadline):
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		time.Sleep(max(pause, min(pausePerTime*time.Since(began), time.Second)))
	}
}

// EditNode changes a node and retries on conflicts. It fails after limit.
func EditNode(ctx context.Context, client kubernetes.Interface, limit time.Duration, name string, edit func(*v1.Node)) error {
	return Until(ctx, limit, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(node)
		_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// Metric returns the sum of a process's metric over all series with these labels.
func Metric(ctx context.Context, p *lab.Process, name string, labels map[string]string) (float64, error) {
	text, err := p.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	parsed := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text, &parsed); err != nil {
		return 0, err
	}
	sum := 0.0
series:
	for _, sample := range parsed[name] {
		for label, value := range labels {
			if string(sample.Metric[testutil.LabelName(label)]) != value {
				continue series
			}
		}
		sum += float64(sample.Value)
	}
	return sum, nil
}

// Start is the time in which an API server started. Before it is ready, it does not know any RBAC
// rights and denies requests that it allows later.
type Start struct{ Began, Ready time.Time }

// StartAPIServerAgain restarts an API server that has ended, and returns when it is ready.
func StartAPIServerAgain(ctx context.Context, cp *lab.ControlPlane, client kubernetes.Interface) (Start, error) {
	began := time.Now()
	if _, err := cp.StartAgain(cp.Process("kube-apiserver")); err != nil {
		return Start{}, err
	}
	err := Until(ctx, time.Minute, func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).DoRaw(ctx)
		return err
	})
	return Start{Began: began, Ready: time.Now()}, err
}

// explains reports whether a log line can report a denial during the start. The client may log
// the denial some time later. A right that is really missing causes later denials too, also in
// tests without such a start.
func (s Start) explains(line string) bool {
	at, err := LogTime(line)
	if at = at.AddDate(s.Began.Year(), 0, 0); at.Before(s.Began) {
		at = at.AddDate(1, 0, 0)
	}
	return err == nil && !at.After(s.Ready.Add(Soon))
}

// LogTime returns the time of a log line, in year 0 of the local time zone. klog writes neither
// year nor zone (I1122 02:50:39.350717).
func LogTime(line string) (time.Time, error) {
	const layout = "0102 15:04:05.000000"
	return time.ParseInLocation(layout, line[min(len(line), 1):min(len(line), len(layout)+1)], time.Local)
}

// Denied returns an error with the first lines of the process's log that report missing rights.
// It ignores lines that a start of the API server explains, and returns nil if no others exist.
func Denied(p *lab.Process, starts ...Start) error {
	denials, err := p.Denials()
	denials = slices.DeleteFunc(denials, func(line string) bool {
		return slices.ContainsFunc(starts, func(s Start) bool { return s.explains(line) })
	})
	if err != nil || len(denials) == 0 {
		return err
	}
	return fmt.Errorf("%s was denied (%d lines):\n%s", p.Name, len(denials), strings.Join(denials[:min(10, len(denials))], "\n"))
}

// Tail returns the last lines of a file for messages.
func Tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprint(err)
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
