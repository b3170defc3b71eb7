package autoscaler

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// podRecord contains the observations of one pod. Times are the times of arrival in the test; a
// zero time means not yet.
type podRecord struct {
	App, Name string
	// Node is the pod's node, and Capacity the capacity type of that node.
	Node, Capacity string
	// Assigned is the value of the annotation with the controller's assignment.
	Assigned                    string
	Created, Bound, Ready, Left time.Time
	// Evicted reports whether the pod was removed by an eviction.
	Evicted bool
	// Serving reports whether the pod is ready and not terminating, as a PodDisruptionBudget
	// counts.
	Serving bool
	// Releases are the times at which the controller released the pod to move it, the oldest first.
	Releases []release
}

// release is a release of a pod. Ended is when the controller returned the pod to its ReplicaSet,
// or when the pod left; zero means not yet.
type release struct{ Began, Ended time.Time }

// nodeRecord contains the observations of one node.
type nodeRecord struct {
	Name, Capacity, Pool, Type string
	// Draining is the first observation of its deletion: Karpenter drains it before the object
	// disappears.
	Created, Draining, Gone time.Time
	// Hosted is the number of the scenario's pods that were bound to it.
	Hosted int
}

// history contains the watches' observations of the scenario's pods and of all nodes. It fails
// the test when fewer pods of an app serve than required, in total or on on-demand.
type history struct {
	t     testing.TB
	mu    sync.Mutex
	over  bool // the test has ended, and its objects are being deleted
	pods  map[types.UID]*podRecord
	nodes map[string]*nodeRecord
	// least is the number of pods of an app that must serve at every moment, and floors the
	// number on on-demand.
	least, floors map[string]int
}

// watch watches the scenario's pods and all nodes until the test ends.
func (s *scenario) watch() *history {
	s.Helper()
	h := &history{t: s.T, pods: map[types.UID]*podRecord{}, nodes: map[string]*nodeRecord{}, least: map[string]int{}, floors: map[string]int{}}
	factory := informers.NewSharedInformerFactory(kube, 0)
	own := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(s.namespace))
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(handler(h.observeNode))
	s.must(err)
	pods, err := own.Core().V1().Pods().Informer().AddEventHandler(handler(h.observePod))
	s.must(err)
	factory.Start(s.ctx.Done())
	own.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		s.Fatal("the test ended before its watch started")
	}
	return h
}

// handler returns a handler that calls observe with every state of an object, including the last.
func handler[T any](observe func(now time.Time, object T, deleted bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { observe(time.Now(), object.(T), false) },
		UpdateFunc: func(_, object any) { observe(time.Now(), object.(T), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			observe(time.Now(), object.(T), true)
		},
	}
}

func (h *history) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (h *history) observeNode(now time.Time, node *v1.Node, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	record := h.node(node.Name)
	record.Capacity, record.Pool, record.Type = capacityOf(node), node.Labels[lab.KarpenterPoolLabel], node.Labels[v1.LabelInstanceTypeStable]
	record.Created = cmp.Or(record.Created, now)
	if node.DeletionTimestamp != nil {
		record.Draining = cmp.Or(record.Draining, now)
	}
	if deleted {
		record.Gone = now
	}
}

// node returns the record of a node, and creates it if necessary.
func (h *history) node(name string) *nodeRecord {
	record := h.nodes[name]
	if record == nil {
		record = &nodeRecord{Name: name}
		h.nodes[name] = record
	}
	return record
}

func (h *history) observePod(now time.Time, pod *v1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	record := h.pods[pod.UID]
	if record == nil {
		record = &podRecord{App: pod.Labels["app"], Name: pod.Name, Created: now}
		h.pods[pod.UID] = record
	}
	record.Assigned = cmp.Or(pod.Annotations[assignedAnnotation], record.Assigned)
	if pod.Spec.NodeName != "" && record.Bound.IsZero() {
		record.Bound, record.Node = now, pod.Spec.NodeName
		h.node(pod.Spec.NodeName).Hosted++
	}
	record.observeRelease(now, pod, deleted)
	served, leaves := record.Serving, deleted || pod.DeletionTimestamp != nil
	record.Serving = false
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == v1.PodReady && c.Status == v1.ConditionTrue:
			record.Ready = cmp.Or(record.Ready, now)
			record.Serving = !leaves
		case c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI":
			record.Evicted = true
		}
	}
	if leaves {
		record.Left = cmp.Or(record.Left, now)
	}
	if serving := h.serving(record.App, nil); served && serving < h.least[record.App] {
		h.t.Errorf("%s: %d pods serve at %s without %s on %s (evicted: %t), want at least %d",
			record.App, serving, now.Format("15:04:05.000"), record.Name, record.Node, record.Evicted, h.least[record.App])
	}
	if serving := h.serving(record.App, h.spot()); served && serving < h.floors[record.App] {
		h.t.Errorf("%s: %d pods serve on on-demand at %s without %s on %s (evicted: %t), want the floor of %d",
			record.App, serving, now.Format("15:04:05.000"), record.Name, record.Node, record.Evicted, h.floors[record.App])
	}
}

// observeRelease records the beginning or the end of a release. Either of the two marks counts.
func (r *podRecord) observeRelease(now time.Time, pod *v1.Pod, deleted bool) {
	_, annotated := pod.Annotations[releasedAnnotation]
	released := !deleted && (annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "released")
	switch n := len(r.Releases); {
	case n == 0 || !r.Releases[n-1].Ended.IsZero():
		if released {
			// Copies of the record share no element that changes later.
			r.Releases = append(slices.Clone(r.Releases), release{Began: now})
		}
	case !released:
		r.Releases = slices.Clone(r.Releases)
		r.Releases[n-1].Ended = now
	}
}

// spot returns the names of the spot nodes.
func (h *history) spot() map[string]bool {
	nodes := map[string]bool{}
	for name, record := range h.nodes {
		nodes[name] = record.Capacity == lab.Spot
	}
	return nodes
}

// serving counts the serving pods of an app on nodes other than these.
func (h *history) serving(app string, except map[string]bool) (n int) {
	for _, record := range h.pods {
		if record.App == app && record.Serving && !except[record.Node] {
			n++
		}
	}
	return n
}

// podsOf returns the records of the pods of an app, oldest first.
func (h *history) podsOf(app string) []podRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []podRecord
	for _, record := range h.pods {
		if record.App == app {
			one := *record
			if node := h.nodes[one.Node]; node != nil {
				one.Capacity = node.Capacity
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b podRecord) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
	return out
}

// all returns the records of all nodes, oldest first.
func (h *history) all() []nodeRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []nodeRecord
	for _, record := range h.nodes {
		out = append(out, *record)
	}
	slices.SortFunc(out, func(a, b nodeRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return out
}
