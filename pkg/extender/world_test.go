package extender

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

const profile = "spot-aware-scheduler"

// world is an extender with informers that the test feeds, without an API server.
type world struct {
	testing.TB
	*Extender
	factory informers.SharedInformerFactory
	clock   *clocktesting.FakeClock
	events  chan string
	names   []string // of all nodes, in the order in which they were added
}

func newWorld(t testing.TB, edits ...func(*decision.Policy)) *world {
	policy := &decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
		CapacityLabels: providers.CapacityLabels(),
	}
	for _, edit := range edits {
		edit(policy)
	}
	w := &world{TB: t, factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	recorder := events.NewFakeRecorder(100)
	w.events = recorder.Events
	var err error
	if w.Extender, err = New(profile, policy, providers.Signals(), w.factory, recorder, w.clock); err != nil {
		t.Fatal(err)
	}
	return w
}

// node adds a node. Its pool has its own name unless pool is set.
func (w *world) node(name, capacity, pool string) {
	w.names = append(w.names, name)
	w.setNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(w.clock.Now()), Labels: map[string]string{
		spot.CapacityLabel: capacity, v1.LabelInstanceTypeStable: pool, v1.LabelTopologyZone: "zone-a",
	}}})
}

func (w *world) setNode(node *v1.Node) { w.nodeHandler().OnAdd(node, false) }

// nodes adds n nodes of a capacity type, each in its own pool.
func (w *world) nodes(n int, capacity string) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", capacity, i)
		w.node(name, capacity, name)
	}
}

// deployment adds a Deployment and its ReplicaSet to the caches.
func (w *world) deployment(name string, replicas int32, annotations map[string]string) {
	w.Helper()
	controller := true
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("d-" + name), Annotations: annotations},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
	}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-1", UID: types.UID("rs-" + name), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: d.UID, Controller: &controller,
		}}},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
	w.cache(w.factory.Apps().V1().Deployments().Informer(), d)
	w.cache(w.factory.Apps().V1().ReplicaSets().Informer(), rs)
}

// cache adds object to an informer's cache, as the informer would.
func (w *world) cache(informer cache.SharedIndexInformer, object any) {
	w.Helper()
	trimmed, err := transform.Trim(object)
	if err != nil {
		w.Fatal(err)
	}
	if err := informer.GetStore().Add(trimmed); err != nil {
		w.Fatal(err)
	}
}

// podOf returns the nth pod of a Deployment.
func podOf(deployment string, n int) *v1.Pod {
	controller := true
	name := fmt.Sprintf("%s-1-%d", deployment, n)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: deployment + "-1", UID: types.UID("rs-" + deployment), Controller: &controller,
		}}},
		Spec: v1.PodSpec{SchedulerName: profile},
	}
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
	result, err := w.Extender.filter(w.Context(), pod, w.index.candidates(names))
	if err != nil {
		w.Fatal(err)
	}
	if result.admitsAll {
		return names, nil
	}
	for _, i := range result.admitted {
		kept = append(kept, names[i])
	}
	slices.Sort(kept)
	return kept, result.reasons
}

// created sends the event of a new pod without a node.
func (w *world) created(pod *v1.Pod) { w.podHandler().OnAdd(pod, false) }

// bound sends the event of a binding and returns the bound pod.
func (w *world) bound(pod *v1.Pod, node string) *v1.Pod {
	after := pod.DeepCopy()
	after.Spec.NodeName = node
	w.podHandler().OnUpdate(pod, after)
	return after
}

func (w *world) deleted(pod *v1.Pod) { w.podHandler().OnDelete(pod) }

// newLargeWorld has 5,000 nodes, 3,500 on spot, in 12 pools of each capacity type, and a
// Deployment with 100 replicas.
func newLargeWorld(t testing.TB) *world {
	w := newWorld(t)
	for i := range 5000 {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		w.node(fmt.Sprintf("ip-10-%d-%d.ec2.internal", i/250, i%250), capacity, fmt.Sprintf("type-%d", i%12))
	}
	w.deployment("web", 100, nil)
	return w
}
