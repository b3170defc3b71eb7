package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// The subtests share one control plane, because it starts slower than they run.
func TestControlPlane(t *testing.T) {
	cp, client := startLab(t, Options{PodStartup: 100 * time.Millisecond})
	stock, err := cp.StartStockScheduler(t.Context())
	must(t, err)
	must(t, cp.CreateNodes(t.Context(), NodeSpec{Name: "a"}, NodeSpec{Name: "marked"}, NodeSpec{Name: "broken"}))
	lab := &running{cp, client, stock}
	t.Run("workloads run", lab.testWorkloadsRun)
	t.Run("pods start later on request", lab.testPodStartup)
	t.Run("jobs end", lab.testJobsEnd)
	t.Run("terminating pods vanish", lab.testTerminatingPodsVanish)
	t.Run("fake kubelets preserve manual changes", lab.testKubeletsKeepMarks)
	t.Run("a scheduler that cannot start", lab.testSchedulerThatCannotStart)
	t.Run("the shipped RBAC is enough to schedule", lab.testShippedRBAC)
}

// TestNoControllers schedules a pod on a control plane with only the API server and a scheduler.
func TestNoControllers(t *testing.T) {
	cp, client := startLab(t, Options{NoControllers: true})
	for _, name := range []string{"kube-controller-manager", "kwok"} {
		if cp.Process(name) != nil {
			t.Errorf("%s runs", name)
		}
	}
	must(t, cp.CreateNodes(t.Context(), NodeSpec{Name: "a"}))
	if _, err := cp.StartStockScheduler(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods(corev1.NamespaceDefault)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "alone"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/app"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	err = poll(t.Context(), "the pod to be bound", cp.running(), func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "alone", metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = errors.New("it is pending")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// running is a control plane with the stock scheduler and nodes to run pods on.
type running struct {
	*ControlPlane
	kube  kubernetes.Interface
	stock *Process
}

func (lab *running) testWorkloadsRun(t *testing.T) {
	waitUntilReady(t, lab.kube, createDeployment(t, lab.kube, "web", corev1.DefaultSchedulerName, 5))
	metrics, err := lab.stock.Metrics(t.Context())
	must(t, err)
	if !strings.Contains(metrics, `scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 5`) {
		t.Errorf("the scheduler's metrics do not count 5 scheduled pods")
	}
}

func (lab *running) testPodStartup(t *testing.T) {
	must(t, lab.SetPodStartup(time.Hour))
	name := createDeployment(t, lab.kube, "late", corev1.DefaultSchedulerName, 1)
	eventually(t, "the pod to be bound", func(ctx context.Context) error {
		pods, err := lab.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && (len(pods.Items) == 0 || pods.Items[0].Spec.NodeName == "") {
			err = errors.New("it is not")
		}
		return err
	})
	time.Sleep(2 * time.Second)
	deployment, err := lab.kube.AppsV1().Deployments("default").Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	if deployment.Status.ReadyReplicas != 0 {
		t.Error("a pod with a start-up time of an hour is ready after seconds")
	}
	must(t, lab.SetPodStartup(100*time.Millisecond))
	waitUntilReady(t, lab.kube, name)
}

func (lab *running) testJobsEnd(t *testing.T) {
	template := podTemplate("job", corev1.DefaultSchedulerName)
	template.Annotations = map[string]string{RunTimeAnnotation: "100ms"}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](1), Template: template},
	}
	if _, err := lab.kube.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job to complete", func(ctx context.Context) error {
		job, err := lab.kube.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		if err == nil && job.Status.CompletionTime == nil {
			err = fmt.Errorf("it has the status %+v", job.Status)
		}
		return err
	})
}

func (lab *running) testTerminatingPodsVanish(t *testing.T) {
	pods := lab.kube.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: podTemplate("slow", corev1.DefaultSchedulerName).Spec,
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to run", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "slow", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	must(t, pods.Delete(t.Context(), "slow", metav1.DeleteOptions{}))
	eventually(t, "the pod to be deleted", func(ctx context.Context) error {
		_, err := pods.Get(ctx, "slow", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there, or: %w", err)
	})
}

// Changes that a test makes to a node must persist: tests simulate interruption signals that way.
func (lab *running) testKubeletsKeepMarks(t *testing.T) {
	ctx, nodes := t.Context(), lab.kube.CoreV1().Nodes()
	for _, patch := range []struct{ node, data, subresource string }{
		{"marked", `{"metadata": {"labels": {"mark": "yes"}, "annotations": {"mark": "yes"}},
			"spec": {"taints": [{"key": "mark", "effect": "PreferNoSchedule"}]}}`, ""},
		{"marked", `{"status": {"conditions": [{"type": "VMEventScheduled", "status": "True"}]}}`, "status"},
		{"broken", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`, "status"},
	} {
		_, err := nodes.Patch(ctx, patch.node, types.StrategicMergePatchType, []byte(patch.data), metav1.PatchOptions{},
			strings.Fields(patch.subresource)...)
		must(t, err)
	}

	// KWOK has processed these nodes again once it has handled a node that was created after the
	// changes.
	must(t, lab.CreateNodes(ctx, NodeSpec{Name: "after-the-marks"}))

	type marks struct {
		Label, Annotation string
		Taints            []string
		Ready, Event      corev1.ConditionStatus
	}
	for name, want := range map[string]marks{
		"marked": {"yes", "yes", []string{"mark"}, corev1.ConditionTrue, corev1.ConditionTrue},
		"broken": {Taints: []string{corev1.TaintNodeNotReady, corev1.TaintNodeNotReady}, Ready: corev1.ConditionFalse},
	} {
		// The node lifecycle controller adds its taints one after the other.
		eventually(t, name+" to be as marked", func(ctx context.Context) error {
			node, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := marks{Label: node.Labels["mark"], Annotation: node.Annotations["mark"]}
			for _, taint := range node.Spec.Taints {
				got.Taints = append(got.Taints, taint.Key)
			}
			for _, c := range node.Status.Conditions {
				switch c.Type {
				case corev1.NodeReady:
					got.Ready = c.Status
				case "VMEventScheduled":
					got.Event = c.Status
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
}

func (lab *running) testSchedulerThatCannotStart(t *testing.T) {
	_, err := lab.StartScheduler(t.Context(), SchedulerOptions{
		Binary: lab.tool("kube-scheduler"), ConfigFile: secondScheduler(t),
		Edit: func(config map[string]any) { config["parallelism"] = -1 },
	})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 1 || !strings.Contains(exit.Tail, "parallelism") {
		t.Errorf("got %v, want an ExitError with status 1 that names parallelism", err)
	}
}

// Runs the stock scheduler's binary with the shipped ServiceAccount: the manifests grant the
// rights that a scheduler needs, and no others.
func (lab *running) testShippedRBAC(t *testing.T) {
	scheduler, err := lab.StartScheduler(t.Context(), SchedulerOptions{
		Binary: lab.tool("kube-scheduler"), ConfigFile: secondScheduler(t),
	})
	must(t, err)
	waitUntilReady(t, lab.kube, createDeployment(t, lab.kube, "granted", "second", 3))
	denials, err := scheduler.Denials()
	must(t, err)
	if len(denials) > 0 {
		t.Errorf("the scheduler was denied:\n%s", strings.Join(denials, "\n"))
	}

	config, err := clientcmd.BuildConfigFromFlags("", lab.SchedulerKubeconfig)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	_, err = client.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("reading the stock scheduler's lock: %v, want forbidden", err)
	}
	_, err = client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("reading secrets: %v, want forbidden", err)
	}
}

// secondScheduler returns a configuration with the shipped lock and a profile called second.
func secondScheduler(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceName: spot-aware-scheduler}
profiles: [{schedulerName: second}]
`
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// startLab starts a control plane that ends with the test.
func startLab(t *testing.T, options Options) (*ControlPlane, kubernetes.Interface) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cp, err := Start(t.Context(), options)
	must(t, err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.Config())
	must(t, err)
	return cp, client
}

func createDeployment(t *testing.T, client kubernetes.Interface, name, scheduler string, replicas int32) string {
	t.Helper()
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: podTemplate(name, scheduler),
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return name
}

func podTemplate(name, scheduler string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/main:1",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				},
			}},
		},
	}
}

func waitUntilReady(t *testing.T, client kubernetes.Interface, deployment string) {
	t.Helper()
	eventually(t, deployment+" to be ready", func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("default").Get(ctx, deployment, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != *d.Spec.Replicas {
			err = fmt.Errorf("%d of %d replicas are", d.Status.ReadyReplicas, *d.Spec.Replicas)
		}
		return err
	})
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, poll(ctx, what, nil, check))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
