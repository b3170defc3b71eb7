package clustertest

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// BasicPolicy is the policy of a World: a floor of 1, and no fallback to spot.
var BasicPolicy = &decision.Policy{
	Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
	CapacityLabels: providers.CapacityLabels(),
	LabelGrace:     30 * time.Second,
}

// TB is the part of testing.TB that this package uses. A test of package rapid has it too.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// World is a Reader with the contents of its caches. Tests add objects to the caches directly; the
// informers are not started.
type World struct {
	t       TB
	Factory informers.SharedInformerFactory
	Reader  *snapshot.Reader
	Policy  decision.Policy    // of the Reader; a test may change it before the first Snapshot
	Pods    map[string]*v1.Pod // the pods that Put added, by name
}

// NewWorld returns a World without objects whose policy is BasicPolicy.
func NewWorld(t TB) *World {
	t.Helper()
	w := &World{t: t, Factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0), Policy: *BasicPolicy, Pods: map[string]*v1.Pod{}}
	var err error
	scope := workload.Scope{Profile: Profile, Namespaces: w.Factory.Core().V1().Namespaces().Lister()}
	if w.Reader, err = snapshot.NewReader(w.Factory, &w.Policy, providers.Signals(), scope, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

// Put adds objects to the caches, or replaces them, as the informers would.
func (w *World) Put(objects ...runtime.Object) {
	w.t.Helper()
	Fill(w.t, w.Factory, objects...)
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			w.Pods[pod.Name] = pod
		}
	}
}

// Remove removes an object from its cache.
func (w *World) Remove(object runtime.Object) {
	w.t.Helper()
	if err := CacheOf(w.t, w.Factory, object).Delete(object); err != nil {
		w.t.Fatal(err)
	}
}

// Replace replaces the contents of all caches.
func (w *World) Replace(objects ...runtime.Object) {
	w.t.Helper()
	for _, informer := range w.Reader.Informers() {
		if err := informer.GetIndexer().Replace(nil, ""); err != nil {
			w.t.Fatal(err)
		}
	}
	clear(w.Pods)
	w.Put(objects...)
}

// Snapshot returns the Snapshot of the Reader at Now.
func (w *World) Snapshot() *snapshot.Snapshot {
	w.t.Helper()
	return w.SnapshotAt(Now)
}

// SnapshotAt returns the Snapshot of the Reader at a time.
func (w *World) SnapshotAt(now time.Time) *snapshot.Snapshot {
	w.t.Helper()
	s, err := w.Reader.Snapshot(now)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// Build adds the objects that lines describe in the notation of this package.
func (w *World) Build(lines string) {
	w.t.Helper()
	w.Put(Objects(lines)...)
}

// Find returns the pod with that name.
func Find(t TB, s *snapshot.Snapshot, name string) *snapshot.Pod {
	t.Helper()
	i := slices.IndexFunc(s.Pods, func(p *snapshot.Pod) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no pod %s", name)
	}
	return s.Pods[i]
}

// AddFleet adds nodes of 12 pools, 70 % spot, and Deployments of 10 replicas. Their pods request
// one CPU and run on the nodes in turn. options are options of a workload in the notation.
func (w *World) AddFleet(nodes, cpu, pods int, options ...string) {
	w.t.Helper()
	nodeName := func(i int) string { return fmt.Sprintf("n%05d", i%nodes) }
	for i := range nodes {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		w.Put(NewNode(nodeName(i), capacity, fmt.Sprintf("m%d/z%d", i%4, i%3), fmt.Sprintf("cpu=%d", cpu)))
	}
	for i := range pods {
		name := fmt.Sprintf("web%05d", i/10)
		if i%10 == 0 {
			w.Put(NewDeployment(name, 10)...)
		}
		w.Put(replica(name, i%10, OwnedBy("ReplicaSet", name+"-r"), nodeName(i), options)...)
	}
}
