package replicasafety

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const profile = clustertest.Profile

var now = clustertest.Now

func TestMain(m *testing.M) {
	schedulermetrics.Register()
	os.Exit(m.Run())
}

// world is the plugin in the scheduler's own framework and cache, with a fake API server and a fake
// clock. No pod is scheduled automatically: a test runs one cycle with try.
type world struct {
	t      testing.TB
	ctx    context.Context
	client *fake.Clientset

	factory   informers.SharedInformerFactory
	framework framework.Framework
	plugin    *Plugin
	clock     *clocktesting.FakeClock
	cache     cache.Cache
	snapshot  *cache.Snapshot
	nominated *nominator
	woken     *activator
	recorder  *events.FakeRecorder
}

// after is a setting with the duration d.
func after(d time.Duration) *config.DurationOrNever {
	return &config.DurationOrNever{Duration: metav1.Duration{Duration: d}}
}

// newWorld returns a world whose informers contain objects and are in sync. change modifies the
// args: the defaults, with fallbackAfter never. It may be nil.
func newWorld(t testing.TB, change func(*config.ReplicaSafetyArgs), objects ...runtime.Object) *world {
	t.Helper()
	w := newWorldNotSynced(t, change, objects...)
	w.factory.Start(w.ctx.Done())
	w.eventually("the plugin's caches are in sync", w.plugin.synced)
	return w
}

// newWorldNotSynced is like newWorld but does not start the informers.
func newWorldNotSynced(t testing.TB, change func(*config.ReplicaSafetyArgs), objects ...runtime.Object) *world {
	t.Helper()
	args := &config.ReplicaSafetyArgs{WorkloadSettings: config.WorkloadSettings{FallbackAfter: &config.DurationOrNever{Never: true}}}
	args.SetDefaults()
	if change != nil {
		change(args)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{
		t: t, ctx: ctx, client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(now),
		cache: cache.New(ctx, nil, false), snapshot: cache.NewEmptySnapshot(), nominated: &nominator{pods: map[string][]fwk.PodInfo{}}, woken: &activator{}, recorder: events.NewFakeRecorder(1000),
	}
	w.factory = informers.NewSharedInformerFactory(w.client, 0)
	t.Cleanup(func() { cancel(); w.factory.Shutdown() })
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
		Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := NewFactory(nil, &leader.Memory{})(ctx, args, handle)
			if err == nil {
				w.plugin = plugin.(*Plugin)
				w.plugin.clock, w.plugin.labels.Clock = w.clock, w.clock
				w.plugin.waiting = placement.NewWaitingPods(w.clock, func(pods map[string]*v1.Pod) { handle.Activate(klog.FromContext(ctx), pods) })
				w.plugin.cluster.Clock, w.plugin.cluster.Waiting = w.clock, w.plugin.waiting.ForOnDemand
			}
			return plugin, err
		},
	}
	var err error
	w.framework, err = frameworkruntime.NewFramework(ctx, registry, &schedulerconfig.KubeSchedulerProfile{
		SchedulerName: profile,
		Plugins: &schedulerconfig.Plugins{MultiPoint: schedulerconfig.PluginSet{
			Enabled: []schedulerconfig.Plugin{{Name: queuesort.Name}, {Name: defaultbinder.Name}, {Name: Name}}}},
		PluginConfig: []schedulerconfig.PluginConfig{{Name: Name, Args: args}},
	}, frameworkruntime.WithClientSet(w.client), frameworkruntime.WithInformerFactory(w.factory),
		frameworkruntime.WithSnapshotSharedLister(w.snapshot), frameworkruntime.WithPodNominator(w.nominated),
		frameworkruntime.WithPodActivator(w.woken), frameworkruntime.WithEventRecorder(w.recorder))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// nominator simulates the scheduler's list of nominated pods. It is safe for concurrent use.
type nominator struct {
	mu    sync.Mutex
	pods  map[string][]fwk.PodInfo // by the node's name
	reads int                      // calls of NominatedPodsForNode
}

func (n *nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n *nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (n *nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}

func (n *nominator) NominatedPodsForNode(node string) []fwk.PodInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	return slices.Clone(n.pods[node])
}

func (n *nominator) add(node string, pod fwk.PodInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[node] = append(n.pods[node], pod)
}

func (n *nominator) clear(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, node)
}

func (n *nominator) readCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reads
}

// activator simulates the scheduling queue and records the woken pods.
type activator struct {
	mu    sync.Mutex
	names []string
}

func (a *activator) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range pods {
		a.names = append(a.names, name)
	}
}

// take returns the pods that were woken since its last call.
func (a *activator) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.names
	a.names = nil
	slices.Sort(names)
	return slices.Compact(names)
}

// outcome is the result of this plugin in one scheduling cycle.
type outcome struct {
	state    fwk.CycleState
	rejected *fwk.Status            // status of PreFilter; nil if it succeeded
	refused  map[string]*fwk.Status // statuses of Filter, by node
	feasible []string
}

// try runs PreFilter and Filter for pod on a fresh snapshot, and PostFilter if no node is feasible.
func (w *world) try(pod *v1.Pod) outcome {
	w.t.Helper()
	w.seen(pod)
	w.must(w.cache.UpdateSnapshot(klog.FromContext(w.ctx), w.snapshot))
	o := outcome{state: framework.NewCycleState(), refused: map[string]*fwk.Status{}}
	if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, o.state, pod); !status.IsSuccess() {
		o.rejected = status
		if !status.IsRejected() {
			return o // an error: the scheduler retries after a back-off
		}
	} else {
		infos, err := w.snapshot.NodeInfos().List()
		w.must(err)
		for _, info := range infos {
			if status := w.framework.RunFilterPluginsWithNominatedPods(w.ctx, o.state, pod, info); status.IsSuccess() {
				o.feasible = append(o.feasible, info.Node().Name)
			} else {
				o.refused[info.Node().Name] = status
			}
		}
		slices.Sort(o.feasible)
	}
	if len(o.feasible) == 0 {
		w.framework.RunPostFilterPlugins(w.ctx, o.state, pod, framework.NewDefaultNodeToStatus())
	}
	return o
}

// seen adds pod to the informer's cache, because the scheduler tries only pods in its cache.
func (w *world) seen(pod *v1.Pod) {
	w.t.Helper()
	w.must(w.factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
}

// bind runs the extension points that follow a cycle that found node.
func (w *world) bind(o outcome, pod *v1.Pod, node string) {
	w.t.Helper()
	w.must(w.framework.RunReservePluginsReserve(w.ctx, o.state, pod, node).AsError())
	w.framework.RunPostBindPlugins(w.ctx, o.state, pod, node)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until a condition that depends on informers is true.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// recorded returns the events so far, each as "type reason note".
func (w *world) recorded() []string {
	var all []string
	for {
		select {
		case event := <-w.recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

// nodes adds nodes to the scheduler's cache. addPods adds pods that are bound to a node.
func (w *world) nodes(nodes ...*v1.Node) {
	for _, node := range nodes {
		w.cache.AddNode(klog.FromContext(w.ctx), node)
	}
}

func (w *world) addPods(node string, pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		pod.Spec.NodeName = node
		w.must(w.cache.AddPod(klog.FromContext(w.ctx), pod))
	}
}

// Short names of the builders.
var (
	podOf       = clustertest.NewPod
	by          = clustertest.OwnedBy
	meta        = clustertest.Meta
	deployment  = clustertest.NewDeployment
	statefulSet = clustertest.NewStatefulSet
	terminating = clustertest.Terminate
)

// newNode returns a node of the pool m/a.
func newNode(name, capacity string) *v1.Node { return clustertest.NewNode(name, capacity, "m/a") }

func onDemand(name string) *v1.Node { return newNode(name, "on-demand") }
func spotNode(name string) *v1.Node { return newNode(name, "spot") }

// young returns a new node without a capacity label.
func young(name string) *v1.Node { return clustertest.NewNode(name, "", "m/a", "born=0s") }

// keyOf returns the key of the reference that by creates, or of a pod without a controller for the
// kind Pod.
func keyOf(kind, name string) workload.OwnerKey {
	if kind == "Pod" {
		return workload.OwnerKey{Namespace: "shop", Kind: kind, UID: clustertest.UID(name)}
	}
	ref := by(kind, name)
	return workload.KeyOf("shop", &ref)
}

// withAnnotations annotates the first of objects and returns all.
func withAnnotations(annotations map[string]string, objects []runtime.Object) []runtime.Object {
	objects[0].(metav1.Object).SetAnnotations(annotations)
	return objects
}

func job(name string, parallelism, completions int32) *batchv1.Job {
	j := clustertest.NewJob(name, parallelism)
	j.Spec.Completions = &completions
	return j
}

// web is a pod of the first revision of the Deployment "web".
func web(name string) *v1.Pod { return podOf(name, by("ReplicaSet", "web-1")) }

func annotate(pod *v1.Pod, key, value string) *v1.Pod {
	pod.Annotations = map[string]string{key: value}
	return pod
}

// reasons returns the reasons of an outcome by node. It checks that preemption cannot resolve them.
func (w *world) reasons(o outcome) map[string]string {
	w.t.Helper()
	reasons := map[string]string{}
	for name, status := range o.refused {
		if status.Code() != fwk.UnschedulableAndUnresolvable {
			w.t.Errorf("node %s: status %s, want UnschedulableAndUnresolvable", name, status.Code())
		}
		reasons[name] = strings.Join(status.Reasons(), "; ")
	}
	return reasons
}
