//go:build long

package owners

import (
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// record contains the observations of one pod. Times are the times of arrival in the test; a zero
// time means not yet.
type record struct {
	app, name string
	labels    map[string]string
	onDemand  bool // its node is an on-demand node
	serving   bool // ready and not terminating, as a PodDisruptionBudget counts
	gone      bool
	created   time.Time
	ready     time.Time
}

// history contains the watches' observations of the scenario's pods.
type history struct {
	mu   sync.Mutex
	pods map[types.UID]*record
	// least is the smallest number of serving pods on on-demand since resetLeast.
	least int
}

// watch watches the scenario's pods until the test ends.
func (s *scenario) watch() *history {
	s.Helper()
	h := &history{pods: map[types.UID]*record{}}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(s.namespace))
	synced, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.observe(object.(*v1.Pod), false) },
		UpdateFunc: func(_, object any) { h.observe(object.(*v1.Pod), false) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			h.observe(object.(*v1.Pod), true)
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), synced.HasSynced) {
		s.Fatal("the test ended before its watch started")
	}
	return h
}

func (h *history) observe(pod *v1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.pods[pod.UID]
	if r == nil {
		r = &record{created: time.Now()}
		h.pods[pod.UID] = r
	}
	isReady := slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
	r.app, r.name, r.labels, r.gone = pod.Labels["app"], pod.Name, pod.Labels, deleted
	r.onDemand = strings.HasPrefix(pod.Spec.NodeName, "od-")
	r.serving = isReady && !deleted && pod.DeletionTimestamp == nil
	if isReady && r.ready.IsZero() {
		r.ready = time.Now()
	}
	h.least = min(h.least, h.servingOnDemand())
}

func (h *history) servingOnDemand() (n int) {
	for _, r := range h.pods {
		if r.serving && r.onDemand {
			n++
		}
	}
	return n
}

// resetLeast starts the measurement of least.
func (h *history) resetLeast() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.least = h.servingOnDemand()
}

// leastOnDemand returns the smallest number of ready pods on on-demand since resetLeast.
func (h *history) leastOnDemand() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.least
}

// ready returns the number of serving pods of an app.
func (h *history) ready(app string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.pods {
		if r.app == app && r.serving {
			n++
		}
	}
	return n
}

// since returns the observations of the pods that were created after a time.
func (h *history) since(began time.Time) (records []record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.pods {
		if r.created.After(began) {
			records = append(records, *r)
		}
	}
	return records
}
