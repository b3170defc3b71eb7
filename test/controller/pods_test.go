package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const releasedAnnotation = "spot-aware-scheduler.io/released"

// podRecord contains the observations of one pod. Times are the times of arrival in the test; a
// zero time means not yet.
type podRecord struct {
	app, name string
	// node is its latest node.
	node string
	// released is the first observation of its release from its ReplicaSet, restored that of its
	// restoration.
	released, restored time.Time
	// evicted reports whether the pod terminates because of an eviction.
	evicted bool
	// leaves is the first observation of its termination or deletion.
	leaves time.Time
}

// history contains a watch's observations of the pods of a scenario's namespaces. It fails the
// test at once when an app has fewer ready pods than required.
type history struct {
	t  testing.TB
	mu sync.Mutex
	// over is true when the test has ended and its pods are deleted.
	over bool
	pods map[types.UID]*podRecord
	// ready are, by app, the nodes of the pods that are ready and not terminating, as a
	// PodDisruptionBudget counts.
	ready map[string]map[types.UID]string
	// least and floors are the required numbers of ready pods by app: on all nodes, and on
	// on-demand nodes.
	least, floors map[string]int
	// fewest is the smallest number of ready pods of all apps together.
	fewest int
}

// watch watches the pods of the scenario's namespace until the test ends.
func (s *scenario) watch() *history {
	s.Helper()
	h := &history{t: s.T, pods: map[types.UID]*podRecord{}, ready: map[string]map[types.UID]string{}, least: map[string]int{}, floors: map[string]int{}}
	h.follow(s, s.namespace)
	s.Cleanup(func() { // before the cleanup of the scenario
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
	})
	return h
}

// follow makes h observe the pods of a namespace from now on, with a new watch. A watch that an
// outage has interrupted recovers only after up to a minute and misses the changes in between.
// App names are unique in a scenario.
func (h *history) follow(s *scenario, namespace string) {
	s.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.observe(time.Now(), object.(*v1.Pod), false) },
		UpdateFunc: func(_, object any) { h.observe(time.Now(), object.(*v1.Pod), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			h.observe(time.Now(), object.(*v1.Pod), true)
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), registration.HasSynced) {
		s.Fatal("the test ended before its watch started")
	}
}

func (h *history) observe(now time.Time, pod *v1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	app := pod.Labels["app"]
	record := h.pods[pod.UID]
	if record == nil {
		record = &podRecord{app: app, name: pod.Name}
		h.pods[pod.UID] = record
	}
	if !record.leaves.IsZero() {
		return // a late watch reports an older state
	}
	first := func(t *time.Time) {
		if t.IsZero() {
			*t = now
		}
	}
	record.node = pod.Spec.NodeName
	if _, released := pod.Annotations[releasedAnnotation]; released {
		first(&record.released)
	} else if !record.released.IsZero() {
		first(&record.restored)
	}
	record.evicted = record.evicted || slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	})
	leaves := deleted || pod.DeletionTimestamp != nil
	if leaves {
		first(&record.leaves)
	}

	ready := h.ready[app]
	if ready == nil {
		ready = map[types.UID]string{}
		h.ready[app] = ready
	}
	if !leaves && isReady(pod) {
		ready[pod.UID] = pod.Spec.NodeName
	} else if ready[pod.UID] != "" {
		delete(ready, pod.UID)
		h.requireEnough(now, app, pod)
	}
}

// requireEnough checks the numbers of ready pods after a pod of the app is not ready any more.
func (h *history) requireEnough(now time.Time, app string, pod *v1.Pod) {
	without := fmt.Sprintf("at %s without %s on %s", now.Format("15:04:05.000"), pod.Name, pod.Spec.NodeName)
	if n := len(h.ready[app]); n < h.least[app] {
		h.t.Errorf("%s: %d pods are ready %s, want at least %d", app, n, without, h.least[app])
	}
	if n := h.readyOnDemand(app); n < h.floors[app] {
		h.t.Errorf("%s: %d pods are ready on on-demand nodes %s, want at least %d", app, n, without, h.floors[app])
	}
	h.fewest = min(h.fewest, h.allReady())
}

// readyOnDemand returns the number of ready pods of the app on nodes of live.OnDemand.
func (h *history) readyOnDemand(app string) (n int) {
	for _, node := range h.ready[app] {
		if strings.HasPrefix(node, "od-") {
			n++
		}
	}
	return n
}

// allReady returns the number of ready pods of all apps.
func (h *history) allReady() (n int) {
	for _, ready := range h.ready {
		n += len(ready)
	}
	return n
}

func isReady(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// requireReady makes the test fail at every moment with fewer ready pods of the app. At least as
// many must be ready now.
func (h *history) requireReady(app string, least int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := len(h.ready[app]); now < least {
		h.t.Fatalf("%s: %d pods are ready, want at least %d from the start", app, now, least)
	}
	h.least[app] = least
}

// readyOf returns the number of ready pods of the app.
func (h *history) readyOf(app string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ready[app])
}

// all returns the observations of the pods of an app, in the order in which they left; "" for all
// apps.
func (h *history) all(app string) []podRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []podRecord
	for _, record := range h.pods {
		if app == "" || record.app == app {
			found = append(found, *record)
		}
	}
	slices.SortFunc(found, func(a, b podRecord) int { return a.leaves.Compare(b.leaves) })
	return found
}

// removed returns the observations of the pods that have left or are terminating.
func (h *history) removed(app string) []podRecord {
	return slices.DeleteFunc(h.all(app), func(at podRecord) bool { return at.leaves.IsZero() })
}

// removedCount counts the pods that have left or are terminating.
func (h *history) removedCount() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, record := range h.pods {
		if !record.leaves.IsZero() {
			n++
		}
	}
	return n
}

// haveBeenRemoved returns a check that at least `want` pods have left.
func (s *scenario) haveBeenRemoved(want int) func() error {
	return func() error {
		if gone := s.seen.removedCount(); gone < want {
			return fmt.Errorf("%d of %d pods have left", gone, want)
		}
		return nil
	}
}

// haveAllBeenRemoved returns a check that at least as many pods have left as all apps have replicas
// together.
func (s *scenario) haveAllBeenRemoved(replicas map[string]int) func() error {
	all := 0
	for _, n := range replicas {
		all += n
	}
	return s.haveBeenRemoved(all)
}

// releasedOrRemoved returns the names of the pods of an app that were released or have left; "" for
// all apps.
func (h *history) releasedOrRemoved(app string) []string {
	var names []string
	for _, record := range h.all(app) {
		if !record.released.IsZero() || !record.leaves.IsZero() {
			names = append(names, record.name)
		}
	}
	return names
}

// empty returns a check that no pod is on the node.
func (s *scenario) empty(node string) func() error {
	return func() error {
		list, err := client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are on %s", len(list.Items), node)
		}
		return err
	}
}
