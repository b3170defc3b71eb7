package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/narrowsearch"
)

// world is the running scheduler with the shipped configuration and a fake API server. Waiting pods
// are not flushed from the queue after a timeout, so only events retry them.
type world struct {
	t       testing.TB
	ctx     context.Context
	client  *fake.Clientset
	factory informers.SharedInformerFactory

	mu       sync.Mutex
	attempts map[string]int    // by pod
	bound    map[string]string // pod to node
	deleted  []string          // in the order of their deletion: the victims of preemption
}

// newWorld starts the scheduler. edits are pairs of a text in config/scheduler-config.yaml and its
// replacement.
func newWorld(t testing.TB, edits []string, objects ...runtime.Object) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, ctx: ctx, client: fake.NewClientset(objects...), attempts: map[string]int{}, bound: map[string]string{}}
	w.client.PrependReactor("create", "pods", w.bind)
	w.client.PrependReactor("delete", "pods", w.noteDeleted)

	cfg, err := options.LoadConfigFromFile(klog.Background(), w.config(edits))
	w.must(err)
	registry := frameworkruntime.Registry{}
	for _, plugin := range plugins(&leader.Memory{}) {
		w.must(plugin(registry))
	}
	w.factory = scheduler.NewInformerFactory(w.client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.client.EventsV1()})
	sched, err := scheduler.New(ctx, w.client, w.factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(24*time.Hour))
	w.must(err)
	narrowsearch.Enable(sched, cfg.PercentageOfNodesToScore)
	schedule := sched.SchedulePod
	sched.SchedulePod = func(
		ctx context.Context, profile framework.Framework, cycle fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		w.mu.Lock()
		w.attempts[pod.Pod.Name]++
		w.mu.Unlock()
		return schedule(ctx, profile, cycle, pod)
	}
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	w.must(sched.WaitForHandlersSync(ctx))
	var running sync.WaitGroup
	running.Go(func() { sched.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); w.factory.Shutdown(); broadcaster.Shutdown() })
	return w
}

// config writes the shipped configuration with edits to a file and returns its name.
func (w *world) config(edits []string) string {
	w.t.Helper()
	data, err := os.ReadFile(shipped)
	w.must(err)
	text := string(data)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			w.t.Fatalf("%s has no %q", shipped, edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	file := filepath.Join(w.t.TempDir(), "config.yaml")
	w.must(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// bind simulates the API server and the kubelet after a binding.
func (w *world) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	pods := v1.SchemeGroupVersion.WithResource("pods")
	object, err := w.client.Tracker().Get(pods, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	w.mu.Lock()
	w.bound[pod.Name] = binding.Target.Name
	w.mu.Unlock()
	return true, binding, w.client.Tracker().Update(pods, runsOn(binding.Target.Name, pod), pod.Namespace)
}

func (w *world) noteDeleted(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted = append(w.deleted, action.(clienttesting.DeleteAction).GetName())
	return false, nil, nil
}

// tried returns how often the scheduler tried each pod.
func (w *world) tried() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.attempts)
}

// nodeOf returns the node that the pod is bound to; "" if it is not bound.
func (w *world) nodeOf(pod string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound[pod]
}

// place creates pod, waits until it is bound, and returns how long it took.
func (w *world) place(pod *v1.Pod) time.Duration {
	w.t.Helper()
	began := time.Now()
	w.create(pod)
	w.eventually(pod.Name+" is bound", func() bool { return w.nodeOf(pod.Name) != "" })
	return time.Since(began)
}

func (w *world) create(pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		_, err := w.client.CoreV1().Pods(pod.Namespace).Create(w.ctx, pod, metav1.CreateOptions{})
		w.must(err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// nodeWith returns an old, ready node by the real clock, which the scheduler uses.
func nodeWith(name, capacity, cpu string) *v1.Node {
	node := clustertest.NewNode(name, capacity, "m/a", "cpu="+cpu, "pods=200")
	node.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	node.Status.Capacity = node.Status.Allocatable
	return node
}

// podWith returns a pending pod of the shipped profile.
func podWith(name, cpu string, owners ...metav1.OwnerReference) *v1.Pod {
	pod := clustertest.NewPod(name, owners...)
	pod.Spec.Priority, pod.Status.Phase = new(int32), v1.PodPending
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "c"
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
	return pod
}

// runsOn returns pod as a pod that runs on node.
func runsOn(node string, pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName, pod.Status.Phase = node, v1.PodRunning
	return pod
}
