package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// The marks that the controller writes to pods, as literals, so that a change of a constant in the
// code fails the tests.
const (
	ReleasedAnnotation = "spot-aware-scheduler.io/released"
	AssignedAnnotation = "spot-aware-scheduler.io/assigned"
)

// PodRecord contains the observations of one pod. Times are the times of arrival in the test; a
// zero time means not yet.
type PodRecord struct {
	App, Name string
	// Node is the pod's latest node, and Capacity the capacity type of that node.
	Node, Capacity string
	// Assigned is the value of the annotation with the controller's assignment.
	Assigned string
	// Nominated lists each node that preemption nominated for the pod, once.
	Nominated []string
	Created   time.Time
	// Unschedulable is when the pod was first seen with the condition that it is unschedulable. The
	// condition's own transition time can be that of a scheduling gate instead.
	Unschedulable time.Time
	Bound, Ready  time.Time
	// Left is the first observation of the pod's termination or deletion.
	Left time.Time
	// Evicted reports whether the pod was removed by an eviction, and TaintEvicted whether
	// Kubernetes deleted it because of a taint of its node.
	Evicted, TaintEvicted bool
	// Serving reports whether the pod is ready and not terminating, as a PodDisruptionBudget
	// counts.
	Serving bool
	// Releases are the times at which the controller released the pod to move it, the oldest first.
	Releases []Release
}

// Release is a release of a pod. Ended is when the controller returned the pod to its ReplicaSet,
// or when the pod left; zero means not yet.
type Release struct{ Began, Ended time.Time }

// Released returns when the pod was first released; zero means never.
func (r PodRecord) Released() time.Time {
	if len(r.Releases) == 0 {
		return time.Time{}
	}
	return r.Releases[0].Began
}

// Method returns the method by which the pod was removed.
func (r PodRecord) Method() string {
	switch {
	case !r.Evicted:
		return "deleted"
	case len(r.Releases) > 0:
		return "surged"
	}
	return "evicted"
}

// NodeRecord contains the observations of one node.
type NodeRecord struct {
	Name, Capacity, Pool, Type string
	// Draining is the first observation of its deletion: Karpenter drains it before the object
	// disappears.
	Created, Draining, Gone time.Time
	// Hosted is the number of the scenario's pods that were bound to it.
	Hosted int
}

// History contains the watches' observations of a scenario's pods and of all nodes. It fails the
// test at once when fewer pods of an app serve than required, in total or on on-demand. App names
// are unique in a scenario.
type History struct {
	client kubernetes.Interface
	mu     sync.Mutex
	t      testing.TB
	over   bool // the test has ended, and its objects are being deleted
	apps   map[string]map[types.UID]*PodRecord
	nodes  map[string]*NodeRecord
	// least is the number of pods of an app that must serve at every moment, and floors the number
	// on on-demand.
	least, floors map[string]int
	// fewestOnDemand is the smallest number of pods that served on on-demand since ResetFewest.
	fewestOnDemand int
}

// Watch records the scenario's pods and all nodes in s.Seen until the test ends.
func (s *Scenario) Watch() *History {
	s.Helper()
	s.Seen = &History{
		client: s.Client, t: s.T, apps: map[string]map[types.UID]*PodRecord{}, nodes: map[string]*NodeRecord{},
		least: map[string]int{}, floors: map[string]int{},
	}
	factory := informers.NewSharedInformerFactory(s.Client, 0)
	s.Must(Observe(s.Ctx, factory, factory.Core().V1().Nodes().Informer(), s.Seen.observeNode))
	s.Must(s.Seen.Follow(s.Ctx, s.Namespace))
	s.Cleanup(s.Seen.end) // before the cleanup of the scenario
	return s.Seen
}

// Follow makes h observe the pods of a namespace from now on, with a new watch. A watch that an
// outage has interrupted recovers only after up to a minute and misses the changes in between.
func (h *History) Follow(ctx context.Context, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(h.client, 0, informers.WithNamespace(namespace))
	return Observe(ctx, factory, factory.Core().V1().Pods().Informer(), h.observePod)
}

// Observe starts an informer of the factory. Until ctx is done, it calls observe with every state
// of an object, including the last. It returns when all existing objects have been observed.
func Observe[T any](
	ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer,
	observe func(now time.Time, object T, deleted bool),
) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { observe(time.Now(), object.(T), false) },
		UpdateFunc: func(_, object any) { observe(time.Now(), object.(T), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			observe(time.Now(), object.(T), true)
		},
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return errors.New("the test ended before its watch started")
	}
	return nil
}

// ReportTo makes h report its errors to another test.
func (h *History) ReportTo(t testing.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t = t
}

func (h *History) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (h *History) observeNode(now time.Time, node *v1.Node, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	record := h.node(node.Name)
	record.Capacity, record.Pool, record.Type = CapacityOf(node), node.Labels[lab.KarpenterPoolLabel], node.Labels[v1.LabelInstanceTypeStable]
	record.Created = cmp.Or(record.Created, now)
	if node.DeletionTimestamp != nil {
		record.Draining = cmp.Or(record.Draining, now)
	}
	if deleted {
		record.Gone = now
	}
}

// node returns the record of a node, and creates it if necessary.
func (h *History) node(name string) *NodeRecord {
	record := h.nodes[name]
	if record == nil {
		record = &NodeRecord{Name: name}
		h.nodes[name] = record
	}
	return record
}

// pod returns the record of a pod, and creates it if necessary.
func (h *History) pod(now time.Time, pod *v1.Pod) *PodRecord {
	app := pod.Labels["app"]
	if h.apps[app] == nil {
		h.apps[app] = map[types.UID]*PodRecord{}
	}
	record := h.apps[app][pod.UID]
	if record == nil {
		record = &PodRecord{App: app, Name: pod.Name, Created: now}
		h.apps[app][pod.UID] = record
	}
	return record
}

func (h *History) observePod(now time.Time, pod *v1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	record := h.pod(now, pod)
	if !record.Left.IsZero() && pod.DeletionTimestamp == nil && !deleted {
		return // a late watch reports an older state
	}
	record.Assigned = cmp.Or(pod.Annotations[AssignedAnnotation], record.Assigned)
	if pod.Spec.NodeName != "" && record.Bound.IsZero() {
		record.Bound, record.Node = now, pod.Spec.NodeName
		h.node(pod.Spec.NodeName).Hosted++
	}
	// Copies of the record share no element that changes later.
	if node := pod.Status.NominatedNodeName; node != "" && !slices.Contains(record.Nominated, node) {
		record.Nominated = append(slices.Clone(record.Nominated), node)
	}
	record.observeRelease(now, pod, deleted)
	served, leaves := record.Serving, deleted || pod.DeletionTimestamp != nil
	record.observeConditions(now, pod, leaves)
	if leaves {
		record.Left = cmp.Or(record.Left, now)
	}
	if served && !record.Serving {
		h.requireEnough(now, record)
	}
}

// observeConditions records the conditions of a pod.
func (r *PodRecord) observeConditions(now time.Time, pod *v1.Pod, leaves bool) {
	r.Serving = false
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == v1.PodReady && c.Status == v1.ConditionTrue:
			r.Ready = cmp.Or(r.Ready, now)
			r.Serving = !leaves
		case c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI":
			r.Evicted = true
		case c.Type == v1.DisruptionTarget && c.Reason == "DeletionByTaintManager":
			r.TaintEvicted = true
		case c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable:
			r.Unschedulable = cmp.Or(r.Unschedulable, now)
		}
	}
}

// observeRelease records the beginning or the end of a release. Either of the two marks counts.
func (r *PodRecord) observeRelease(now time.Time, pod *v1.Pod, deleted bool) {
	_, annotated := pod.Annotations[ReleasedAnnotation]
	released := !deleted && (annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "released")
	switch n := len(r.Releases); {
	case n == 0 || !r.Releases[n-1].Ended.IsZero():
		if released {
			// Copies of the record share no element that changes later.
			r.Releases = append(slices.Clone(r.Releases), Release{Began: now})
		}
	case !released:
		r.Releases = slices.Clone(r.Releases)
		r.Releases[n-1].Ended = now
	}
}

// requireEnough checks the numbers of serving pods after a pod stopped to serve.
func (h *History) requireEnough(now time.Time, without *PodRecord) {
	app := without.App
	if serving := h.serving(app, nil); serving < h.least[app] {
		h.t.Errorf("%s: %d pods are ready at %s without %s on %s (evicted: %t), want at least %d",
			app, serving, now.Format("15:04:05.000"), without.Name, without.Node, without.Evicted, h.least[app])
	}
	if serving := h.serving(app, h.onSpot); serving < h.floors[app] {
		h.t.Errorf("%s: %d pods are ready on on-demand at %s without %s on %s (evicted: %t), want the floor of %d",
			app, serving, now.Format("15:04:05.000"), without.Name, without.Node, without.Evicted, h.floors[app])
	}
	h.fewestOnDemand = min(h.fewestOnDemand, h.servingOnDemand())
}

func (h *History) onSpot(node string) bool {
	record := h.nodes[node]
	return record != nil && record.Capacity == lab.Spot
}

// serving counts the serving pods of an app on nodes other than the excepted nodes.
func (h *History) serving(app string, except func(node string) bool) (n int) {
	for _, record := range h.apps[app] {
		if record.Serving && (except == nil || !except(record.Node)) {
			n++
		}
	}
	return n
}

// servingOnDemand counts the serving pods of all apps on on-demand.
func (h *History) servingOnDemand() (n int) {
	for app := range h.apps {
		n += h.serving(app, h.onSpot)
	}
	return n
}

// Serving returns the number of serving pods of an app on nodes other than these.
func (h *History) Serving(app string, except map[string]bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serving(app, func(node string) bool { return except[node] })
}

// ResetFewest starts the measurement of FewestOnDemand.
func (h *History) ResetFewest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fewestOnDemand = h.servingOnDemand()
}

// FewestOnDemand returns the smallest number of pods that served on on-demand since ResetFewest.
func (h *History) FewestOnDemand() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fewestOnDemand
}

// RequireServing makes the test fail at every later moment with fewer serving pods of the app.
func (h *History) RequireServing(app string, least int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.least[app] = least
}

// RequireReady makes the test fail at every moment with fewer serving pods of the app. At least as
// many must serve now.
func (h *History) RequireReady(app string, least int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t.Helper()
	if now := h.serving(app, nil); now < least {
		h.t.Fatalf("%s: %d pods are ready, want at least %d from the start", app, now, least)
	}
	h.least[app] = least
}

// RequireFloor makes the test fail at every later moment with fewer serving pods of the app on
// on-demand.
func (h *History) RequireFloor(app string, least int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floors[app] = least
}

// Pods returns the records of the pods of an app, or of all apps if it is empty, oldest first.
func (h *History) Pods(app string) (records []PodRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for of, pods := range h.apps {
		if app != "" && of != app {
			continue
		}
		for _, record := range pods {
			one := *record
			if node := h.nodes[one.Node]; node != nil {
				one.Capacity = node.Capacity
			}
			records = append(records, one)
		}
	}
	slices.SortFunc(records, func(a, b PodRecord) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
	return records
}

// Pod returns the record of the youngest pod with this name; an empty record if there is none.
func (h *History) Pod(name string) (found PodRecord) {
	for _, record := range h.Pods("") {
		if record.Name == name {
			found = record
		}
	}
	return found
}

// Removed returns the records of the pods of an app, or of all apps if it is empty, that have left
// or are terminating. They are in the order in which they left.
func (h *History) Removed(app string) []PodRecord {
	left := slices.DeleteFunc(h.Pods(app), func(r PodRecord) bool { return r.Left.IsZero() })
	slices.SortStableFunc(left, func(a, b PodRecord) int { return a.Left.Compare(b.Left) })
	return left
}

// ReleasedOrRemoved returns the names of the pods of an app, or of all apps if it is empty, that
// were released or have left.
func (h *History) ReleasedOrRemoved(app string) (names []string) {
	for _, record := range h.Pods(app) {
		if len(record.Releases) > 0 || !record.Left.IsZero() {
			names = append(names, record.Name)
		}
	}
	return names
}

// Nodes returns the records of all nodes, oldest first.
func (h *History) Nodes() (records []NodeRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, record := range h.nodes {
		records = append(records, *record)
	}
	slices.SortFunc(records, func(a, b NodeRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return records
}
