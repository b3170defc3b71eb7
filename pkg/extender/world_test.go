package extender

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// world is an extender with informers that the test feeds, without an API server.
type world struct {
	testing.TB
	*Extender
	factory informers.SharedInformerFactory
	clock   *clocktesting.FakeClock
	events  chan string
	names   []string // of all nodes, in the order in which they were added
	objects map[string]*v1.Node
}

func newWorld(t testing.TB, edits ...func(*decision.Policy)) *world {
	policy := &decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
		CapacityLabels: providers.CapacityLabels(),
	}
	for _, edit := range edits {
		edit(policy)
	}
	w := &world{TB: t, factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0), clock: clocktesting.NewFakeClock(clustertest.Now), objects: map[string]*v1.Node{}}
	recorder := events.NewFakeRecorder(100)
	w.events = recorder.Events
	var err error
	if w.Extender, err = New(clustertest.Profile, policy, providers.Signals(), w.factory, recorder, w.clock); err != nil {
		t.Fatal(err)
	}
	return w
}

// build adds the nodes and workloads that lines describe in the notation of clustertest.
func (w *world) build(lines string) {
	w.Helper()
	for _, object := range clustertest.Objects(lines) {
		if node, ok := object.(*v1.Node); ok {
			w.names, w.objects[node.Name] = append(w.names, node.Name), node
			w.setNode(nil, node)
			continue
		}
		clustertest.Fill(w, w.factory, object)
	}
}

// nodes adds n nodes of a capacity type, each in its own pool.
func (w *world) nodes(n int, capacity string) {
	for i := range n {
		w.build(fmt.Sprintf("node %[1]s-%[2]d %[1]s %[1]s-%[2]d/z", capacity, i))
	}
}

// podOf returns the nth pod of a Deployment.
func podOf(deployment string, n int) *v1.Pod {
	return clustertest.NewPod(fmt.Sprintf("%s-%d", deployment, n), clustertest.OwnedBy("ReplicaSet", deployment+"-r"))
}

// filter sends a filter request for a pod and returns the permitted nodes in alphabetical order.
func (w *world) filter(pod *v1.Pod, names ...string) []string {
	w.Helper()
	kept, _ := w.filterWithReasons(pod, names...)
	return kept
}

// filterWithReasons is filter, with the reasons if no node is permitted.
func (w *world) filterWithReasons(pod *v1.Pod, names ...string) (kept, reasons []string) {
	w.Helper()
	if len(names) == 0 {
		names = w.names
	}
	admitted, refused, err := w.Extender.filter(w.Context(), pod, names)
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range names {
		if reason, ok := refused[name]; ok {
			reasons = append(reasons, reason)
		}
	}
	return slices.Sorted(slices.Values(admitted)), reasons
}

// created sends the event of a new pod without a node.
func (w *world) created(pod *v1.Pod) { w.setPod(nil, pod) }

// bound sends the event of a binding and returns the bound pod.
func (w *world) bound(pod *v1.Pod, node string) *v1.Pod {
	after := pod.DeepCopy()
	after.Spec.NodeName = node
	w.setPod(pod, after)
	return after
}

func (w *world) deleted(pod *v1.Pod) { w.setPod(pod, nil) }

// newLargeWorld has 5,000 nodes, 3,500 on spot, in 12 pools of each capacity type, and a
// Deployment with 100 replicas.
func newLargeWorld(t testing.TB) *world {
	w := newWorld(t)
	for i := range 5000 {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		w.build(fmt.Sprintf("node ip-10-%d-%d.ec2.internal %s type-%d/z", i/250, i%250, capacity, i%12))
	}
	w.build("deployment web 100")
	return w
}
