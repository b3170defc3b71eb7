package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/monitoring"
)

const (
	// namespace is the namespace of the example workloads.
	namespace = "spot-example"
	// noticeTaint is the taint that the AWS node termination handler sets on a spot node two
	// minutes before its end.
	noticeTaint = "aws-node-termination-handler/spot-itn"
	// every is the scrape interval of Prometheus, and the step of the picture.
	every = 2 * time.Second
	// calm replaces the controller's calmPeriod and pauseAfterInterruption, because the picture
	// would otherwise show ten minutes without a change.
	calm = 5 * time.Second
	// pause is the time between two events, which separates them in the picture.
	pause = 20 * time.Second
	// patience is the longest time that an event may take.
	patience = 2 * time.Minute
)

// story is a lab in which spot nodes are reclaimed and added again, with its recorded events.
type story struct {
	plane        *lab.ControlPlane
	client       kubernetes.Interface
	prometheus   promv1.API
	began, ended time.Time
	marks        []mark
}

// mark is the time of an event in the cluster.
type mark struct {
	at   time.Duration // since the story began
	text string
}

// begin starts a control plane, the demo's nodes, scheduler, controller and Prometheus. The caller
// must stop the control plane.
func begin(ctx context.Context, root string) (_ *story, err error) {
	s := &story{}
	s.plane, err = lab.Start(ctx, lab.Options{Root: root, PodStartup: 2 * time.Second, Progress: s.progress})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.plane.Stop())
		}
	}()
	if s.client, err = kubernetes.NewForConfig(s.plane.Config()); err != nil {
		return nil, err
	}
	if err := s.plane.CreateNodes(ctx, lab.DefaultNodes()...); err != nil {
		return nil, err
	}
	s.progress("starting scheduler, controller and Prometheus")
	scheduler, err := s.plane.StartScheduler(ctx, lab.SchedulerOptions{})
	if err != nil {
		return nil, err
	}
	controller, err := s.plane.StartController(ctx, lab.ControllerOptions{Edit: func(config map[string]any) {
		rebalance := config["rebalance"].(map[string]any)
		rebalance["calmPeriod"], rebalance["pauseAfterInterruption"] = calm.String(), calm.String()
	}})
	if err != nil {
		return nil, err
	}
	s.prometheus, err = monitoring.Scrape(ctx, s.plane, every, monitoring.More{}, scheduler, controller)
	return s, err
}

// play places example workloads. It then reclaims the spot nodes of one zone with notice, reclaims
// all others without notice, and adds spot nodes again. It waits for the result of each event.
func (s *story) play(ctx context.Context) error {
	s.began = time.Now()
	if err := sleep(ctx, pause/2); err != nil {
		return err
	}
	s.recordEvent("five example workloads are created")
	if err := s.create(ctx, "namespace", "admin", "payments", "queue", "storefront", "thumbnails"); err != nil {
		return err
	}
	if err := s.until(ctx, "the workloads to be ready", s.ready); err != nil {
		return err
	}
	placed, err := live.Splits(ctx, s.client, namespace)
	if err != nil {
		return err
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}

	announced, others := spotOf("us-east-1b")
	s.recordEvent(fmt.Sprintf("%d spot nodes of us-east-1b get notice, and are reclaimed when empty", len(announced)))
	if err := s.announce(ctx, announced); err != nil {
		return err
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}

	s.recordEvent(fmt.Sprintf("the other %d spot nodes are lost without notice", len(others)))
	if err := s.deleteNodesAndPods(ctx, others); err != nil {
		return err
	}
	if err := s.until(ctx, "the workloads to be ready", s.ready); err != nil {
		return err
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}

	back := slices.Concat(announced, others)
	for i := range back {
		back[i].Name += "-new"
	}
	s.recordEvent("spot nodes are added again")
	if err := s.plane.CreateNodes(ctx, back...); err != nil {
		return err
	}
	err = s.until(ctx, "the workloads to return to spot", func(ctx context.Context) error {
		now, err := live.Splits(ctx, s.client, namespace)
		if err != nil {
			return err
		}
		if !maps.Equal(now, placed) {
			return fmt.Errorf("the pods are split like %v, want %v", now, placed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}
	s.ended = time.Now()
	return nil
}

// create creates the objects in these files of the example workloads.
func (s *story) create(ctx context.Context, files ...string) error {
	args := []string{"--kubeconfig=" + s.plane.Kubeconfig, "--namespace=" + namespace, "apply"}
	for _, name := range files {
		args = append(args, "--filename="+filepath.Join(s.plane.Root, "manifests/overlays/example-workloads", name+".yaml"))
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(s.plane.Root, ".local/bin/kubectl"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("creating the workloads: %w\n%s", err, out)
	}
	return nil
}

// spotOf returns the spot nodes of a zone, and the spot nodes of all other zones.
func spotOf(zone string) (inZone, elsewhere []lab.NodeSpec) {
	for _, n := range lab.DefaultNodes() {
		switch {
		case n.Capacity != lab.Spot:
		case n.Zone == zone:
			inZone = append(inZone, n)
		default:
			elsewhere = append(elsewhere, n)
		}
	}
	return inZone, elsewhere
}

// announce gives nodes notice, waits until the controller has evicted their pods, and deletes the
// nodes.
func (s *story) announce(ctx context.Context, nodes []lab.NodeSpec) error {
	for _, node := range nodes {
		err := live.EditNode(ctx, s.client, live.Soon, node.Name, func(n *v1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: noticeTaint, Effect: v1.TaintEffectNoSchedule})
		})
		if err != nil {
			return err
		}
	}
	err := s.until(ctx, "the nodes to be empty", func(ctx context.Context) error {
		pods, err := s.podsOn(ctx, nodes)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods remain", len(pods))
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.deleteNodesAndPods(ctx, nodes)
}

// deleteNodesAndPods deletes nodes and their pods at once. It deletes the nodes first, so no
// replacement is bound to one.
func (s *story) deleteNodesAndPods(ctx context.Context, nodes []lab.NodeSpec) error {
	pods, err := s.podsOn(ctx, nodes)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := s.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		err := s.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// podsOn returns the pods on these nodes, including terminating pods.
func (s *story) podsOn(ctx context.Context, nodes []lab.NodeSpec) ([]v1.Pod, error) {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p v1.Pod) bool {
		return !slices.ContainsFunc(nodes, func(n lab.NodeSpec) bool { return n.Name == p.Spec.NodeName })
	}), nil
}

// ready returns an error if a Deployment or the StatefulSet has a replica that is not ready, or if
// a pod has no node.
func (s *story) ready(ctx context.Context) error {
	deployments, err := s.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		if d.Status.ReadyReplicas != *d.Spec.Replicas {
			return fmt.Errorf("%d of %d replicas of %s are ready", d.Status.ReadyReplicas, *d.Spec.Replicas, d.Name)
		}
	}
	sets, err := s.client.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, set := range sets.Items {
		if set.Status.ReadyReplicas != *set.Spec.Replicas {
			return fmt.Errorf("%d of %d replicas of %s are ready", set.Status.ReadyReplicas, *set.Spec.Replicas, set.Name)
		}
	}
	splits, err := live.Splits(ctx, s.client, namespace)
	for app, split := range splits {
		if split.Waiting > 0 {
			err = fmt.Errorf("%d pods of %s wait", split.Waiting, app)
		}
	}
	return err
}

// until waits until check returns nil.
func (s *story) until(ctx context.Context, what string, check func(context.Context) error) error {
	if err := live.Until(ctx, patience, func() error { return check(ctx) }); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// recordEvent records and prints an event.
func (s *story) recordEvent(text string) {
	s.marks = append(s.marks, mark{time.Since(s.began), text})
	s.progress(text)
}

func (s *story) progress(step string) { fmt.Fprintln(os.Stderr, strings.TrimSpace(step)) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
