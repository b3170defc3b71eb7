//go:build node

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

const (
	realNode  = "real"
	namespace = metav1.NamespaceSystem
	scheduler = "spot-aware-scheduler" // name of the Deployment, the Lease, the Service and the profile
	ours      = "app.kubernetes.io/name=spot-aware-scheduler"

	// patience is the limit for one step of this test on a machine with other load.
	patience = 90 * time.Second
)

// cluster is a lab with the real node, fake nodes and the stock scheduler. Its kube-system admits
// only restricted pods.
type cluster struct {
	*testing.T
	ctx    context.Context
	cp     *lab.ControlPlane
	client kubernetes.Interface
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, ctx: t.Context()}
	began := time.Now()
	c.must(EnterIsolation(lab.ServiceAddress))
	cp, err := lab.Start(c.ctx, lab.Options{RealNodes: true})
	c.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			c.logEvidence()
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.cp = cp
	c.client, err = kubernetes.NewForConfig(cp.Config())
	c.must(err)
	_, err = cp.StartStockScheduler(c.ctx)
	c.must(err)
	c.kubectl("label", "namespace", namespace,
		"pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")

	images := filepath.Join(cp.Root, "bin", "images")
	c.must(Join(c.ctx, cp, realNode, lab.CapacityLabel+"="+lab.OnDemand,
		filepath.Join(images, "pause.tar"),
		filepath.Join(images, "spot-aware-scheduler-linux-"+runtime.GOARCH+".tar"),
		filepath.Join(images, "spot-controller-linux-"+runtime.GOARCH+".tar")))
	var fakes []lab.NodeSpec
	for i, capacity := range []string{lab.OnDemand, lab.OnDemand, lab.Spot, lab.Spot, lab.Spot} {
		fakes = append(fakes, lab.NodeSpec{
			Name: fmt.Sprintf("fake-%s-%d", capacity, i+1), Capacity: capacity, Zone: fmt.Sprintf("zone-%d", i%3),
			Labels:      map[string]string{lab.FakeNodeAnnotation: lab.FakeNode},
			Annotations: map[string]string{lab.FakeNodeAnnotation: lab.FakeNode},
			// Pods that really run must not be scheduled here.
			Taints: []corev1.Taint{{Key: lab.FakeNodeAnnotation, Value: lab.FakeNode, Effect: corev1.TaintEffectNoSchedule}},
		})
	}
	c.must(cp.CreateNodes(c.ctx, fakes...))
	node, err := c.client.CoreV1().Nodes().Get(c.ctx, realNode, metav1.GetOptions{})
	c.must(err)
	t.Logf("%s: kubelet %s, %s, beside %d fake nodes, after %.0f s", node.Name, node.Status.NodeInfo.KubeletVersion,
		node.Status.NodeInfo.ContainerRuntimeVersion, len(fakes), time.Since(began).Seconds())
	return c
}

// step runs a part of the test that depends on the earlier parts.
func (c *cluster) step(name string, run func(c *cluster)) {
	c.Helper()
	began := time.Now()
	ok := c.Run(name, func(t *testing.T) { run(&cluster{T: t, ctx: t.Context(), cp: c.cp, client: c.client}) })
	if !ok {
		c.FailNow()
	}
	c.Logf("%s: %.1f s", name, time.Since(began).Seconds())
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// eventually waits until check returns nil.
func (c *cluster) eventually(what string, check func() error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	c.must(c.cp.WaitFor(ctx, what, func(context.Context) error { return check() }))
}

// kubectl returns the standard output of kubectl, and fails the test if kubectl fails or warns.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	out, err := c.tryKubectl(args...)
	c.must(err)
	return out
}

func (c *cluster) tryKubectl(args ...string) (string, error) {
	command := exec.CommandContext(c.ctx, filepath.Join(c.cp.Root, ".local", "bin", "kubectl"),
		append([]string{"--kubeconfig=" + c.cp.Kubeconfig}, args...)...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if err == nil && strings.Contains(errs.String(), "Warning") {
		err = errors.New("kubectl warns")
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// schedulers returns the live pods of the shipped Deployment.
func (c *cluster) schedulers() ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return nil, err
	}
	var live []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live, nil
}

// leader is the process that holds the Lease. A restarted container is another process of the same
// pod.
type leader struct{ pod, identity string }

func (c *cluster) leader() (leader, error) {
	lease, err := c.client.CoordinationV1().Leases(namespace).Get(c.ctx, scheduler, metav1.GetOptions{})
	if err != nil {
		return leader{}, err
	}
	pods, err := c.schedulers()
	if err != nil {
		return leader{}, err
	}
	identity := ptr.Deref(lease.Spec.HolderIdentity, "")
	name, _, _ := strings.Cut(identity, "_")
	for _, pod := range pods {
		if pod.Name == name {
			return leader{name, identity}, nil
		}
	}
	return leader{}, fmt.Errorf("the Lease is held by %q, which is not a live pod of the Deployment", identity)
}

// waitForLeader waits until a process other than the given one leads.
func (c *cluster) waitForLeader(other leader) leader {
	c.Helper()
	var next leader
	c.eventually("a leader", func() (err error) {
		if next, err = c.leader(); err == nil && next == other {
			return fmt.Errorf("%s still leads", other.pod)
		}
		return err
	})
	return next
}

// healthy returns nil if the rollout of the Deployment is complete: exactly two replicas, of its
// newest revision and ready.
func (c *cluster) healthy() error {
	d, err := c.client.AppsV1().Deployments(namespace).Get(c.ctx, scheduler, metav1.GetOptions{})
	if err != nil {
		return err
	}
	available := false
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable {
			available = condition.Status == corev1.ConditionTrue
		}
	}
	s := d.Status
	if !available || s.ObservedGeneration != d.Generation || s.Replicas != 2 || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 {
		pods, err := c.tryKubectl("--namespace="+namespace, "describe", "pods", "--selector="+ours)
		return errors.Join(fmt.Errorf("Available: %t, %d replicas, %d updated, %d available; expected 2 of each\n%s", available,
			s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, pods), err)
	}
	return nil
}

// workload creates a Deployment of pods that opt in. Each pod runs the pause image within the
// limits for restricted pods.
func (c *cluster) workload(name string, replicas int32, edit func(*corev1.PodSpec)) {
	c.Helper()
	labels := map[string]string{"app": name}
	spec := corev1.PodSpec{
		SchedulerName:                 scheduler,
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers:                    []corev1.Container{{Name: "pause", Image: PauseImage, ImagePullPolicy: corev1.PullNever}},
	}
	edit(&spec)
	_, err := c.client.AppsV1().Deployments(metav1.NamespaceDefault).Create(c.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	c.must(err)
}

// fake edits a workload to run on the fake nodes.
func fake(spec *corev1.PodSpec) {
	spec.NodeSelector = map[string]string{lab.FakeNodeAnnotation: lab.FakeNode}
	spec.Tolerations = []corev1.Toleration{{Key: lab.FakeNodeAnnotation, Operator: corev1.TolerationOpExists}}
}

// real edits a workload to run on the real node.
func real(spec *corev1.PodSpec) {
	spec.NodeSelector = map[string]string{corev1.LabelHostname: realNode}
}

// running waits until the given number of a workload's pods is Ready, and returns these pods.
func (c *cluster) running(name string, replicas int) []corev1.Pod {
	c.Helper()
	var ready []corev1.Pod
	c.eventually(fmt.Sprintf("%s to run %d pods", name, replicas), func() error {
		list, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(c.ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		ready = nil
		for _, pod := range list.Items {
			if isReady(&pod) {
				ready = append(ready, pod)
			}
		}
		if len(ready) != replicas {
			return fmt.Errorf("%d of %d pods are Ready", len(ready), replicas)
		}
		return nil
	})
	return ready
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// logEvidence logs information about a failure, because all processes end with the test.
func (c *cluster) logEvidence() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c.ctx = ctx
	for _, args := range [][]string{
		{"get", "nodes,pods", "--all-namespaces", "--output=wide"},
		{"describe", "pods", "--namespace=" + namespace},
		{"logs", "--namespace=" + namespace, "--selector=" + ours, "--tail=20", "--prefix"},
	} {
		out, err := c.tryKubectl(args...)
		c.Logf("%s\n%s%v", strings.Join(args, " "), out, err)
	}
	logs, _ := filepath.Glob(filepath.Join(c.cp.Dir, "logs", "*"))
	for _, log := range logs {
		if strings.Contains(log, "kubelet") || strings.Contains(log, "containerd") {
			text, _ := os.ReadFile(log)
			lines := strings.Split(string(text), "\n")
			c.Logf("end of %s:\n%s", filepath.Base(log), strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
}
