package controller

import (
	"fmt"
	"slices"
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

// sighting is what was seen of one pod. Times are those of its arrival here; a zero time means not yet.
type sighting struct {
	app, name string
	// node is the last one it was on.
	node string
	// released is when it was first seen to have been taken out of its ReplicaSet, restored when it was first seen to be given back.
	released, restored time.Time
	// evicted is whether it goes because of an eviction.
	evicted bool
	// leaves is when it was seen to terminate or to have vanished.
	leaves time.Time
}

// history is what a watch has seen of the pods of a scenario's namespace. It fails the test at once when an app has fewer ready pods than
// it was promised.
type history struct {
	t  testing.TB
	mu sync.Mutex
	// over is true when the test has ended, and its pods go.
	over  bool
	pods  map[types.UID]*sighting
	ready map[string]map[types.UID]bool // by app: ready and not terminating, as a PodDisruptionBudget counts
	least map[string]int
}

// watch starts to watch the pods of the scenario's namespace, until the test ends.
func (s *scenario) watch() *history {
	s.Helper()
	h := &history{t: s.T, pods: map[types.UID]*sighting{}, ready: map[string]map[types.UID]bool{}, least: map[string]int{}}
	h.follow(s, s.namespace)
	s.Cleanup(func() { // before what the scenario made is removed
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
	})
	return h
}

// follow has h told of the pods of a namespace from now on, by a watch of its own: one that an outage has broken is back only after up to a
// minute, and would not know what happened meanwhile. No two apps of a scenario have one name.
func (h *history) follow(s *scenario, namespace string) {
	s.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.take(time.Now(), object.(*v1.Pod), false) },
		UpdateFunc: func(_, object any) { h.take(time.Now(), object.(*v1.Pod), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			h.take(time.Now(), object.(*v1.Pod), true)
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), registration.HasSynced) {
		s.Fatal("the test ended before its watch had begun")
	}
}

func (h *history) take(now time.Time, pod *v1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	app := pod.Labels["app"]
	at := h.pods[pod.UID]
	if at == nil {
		at = &sighting{app: app, name: pod.Name}
		h.pods[pod.UID] = at
	}
	if !at.leaves.IsZero() {
		return // a watch that is late tells of it as it was before
	}
	first := func(t *time.Time) {
		if t.IsZero() {
			*t = now
		}
	}
	at.node = pod.Spec.NodeName
	if _, released := pod.Annotations[releasedAnnotation]; released {
		first(&at.released)
	} else if !at.released.IsZero() {
		first(&at.restored)
	}
	at.evicted = at.evicted || slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	})
	leaves := deleted || pod.DeletionTimestamp != nil
	if leaves {
		first(&at.leaves)
	}

	ready := h.ready[app]
	if ready == nil {
		ready = map[types.UID]bool{}
		h.ready[app] = ready
	}
	if !leaves && isReady(pod) {
		ready[pod.UID] = true
	} else if ready[pod.UID] {
		delete(ready, pod.UID)
		if len(ready) < h.least[app] {
			h.t.Errorf("%s: %d pods are ready at %s without %s on %s, and at least %d must be",
				app, len(ready), now.Format("15:04:05.000"), pod.Name, pod.Spec.NodeName, h.least[app])
		}
	}
}

func isReady(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// promise has the test fail at every moment at which fewer pods of the app are ready. So many must be now.
func (h *history) promise(app string, least int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := len(h.ready[app]); now < least {
		h.t.Fatalf("%s: %d pods are ready, and %d must be from the start", app, now, least)
	}
	h.least[app] = least
}

// readyOf returns how many pods of the app are ready.
func (h *history) readyOf(app string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ready[app])
}

// all returns what was seen of the pods of an app, in the order in which they left; "" for all apps.
func (h *history) all(app string) []sighting {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []sighting
	for _, at := range h.pods {
		if app == "" || at.app == app {
			found = append(found, *at)
		}
	}
	slices.SortFunc(found, func(a, b sighting) int { return a.leaves.Compare(b.leaves) })
	return found
}

// left returns those of all that have left, or begun to.
func (h *history) left(app string) []sighting {
	return slices.DeleteFunc(h.all(app), func(at sighting) bool { return at.leaves.IsZero() })
}

// gone counts those that have left, or begun to.
func (h *history) gone() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.pods {
		if !at.leaves.IsZero() {
			n++
		}
	}
	return n
}

// haveLeft returns a check that the watch has seen so many pods leave, or more.
func (s *scenario) haveLeft(want int) func() error {
	return func() error {
		if gone := s.seen.gone(); gone < want {
			return fmt.Errorf("%d of %d pods have left", gone, want)
		}
		return nil
	}
}

// haveAllLeft returns a check that the watch has seen as many pods leave as all apps together have replicas, or more.
func (s *scenario) haveAllLeft(replicas map[string]int) func() error {
	all := 0
	for _, n := range replicas {
		all += n
	}
	return s.haveLeft(all)
}

// touched returns the names of the pods of an app that were released or have left; "" for all apps.
func (h *history) touched(app string) []string {
	var names []string
	for _, at := range h.all(app) {
		if !at.released.IsZero() || !at.leaves.IsZero() {
			names = append(names, at.name)
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
