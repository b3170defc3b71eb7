package integration

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// sighting is what was seen of one pod. Times are those of its arrival here; a zero time means not yet.
type sighting struct {
	// appeared is when it was first seen.
	appeared time.Time
	// unschedulable is when the scheduler was first seen to have found it unschedulable. The condition's own time does not say
	// that: it is the time of the gates, if there were any.
	unschedulable time.Time
	// why is the message that came with it, the last one.
	why string
	// bound is when it was first seen to have a node; node is that node.
	bound time.Time
	node  string
	// nominated are the nodes that preemption was seen to promise it, each once.
	nominated []string
	// gone is when it was seen to terminate or to have vanished.
	gone time.Time
}

// sightings is what a watch has seen of the pods of a scenario's namespace since it was started.
type sightings struct {
	mu   sync.Mutex
	pods map[string]*sighting
}

// watch starts to watch the pods of the scenario's namespace, until the test ends.
func (s *scenario) watch() *sightings {
	s.Helper()
	seen := &sightings{pods: map[string]*sighting{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.namespace))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen.take(obj.(*v1.Pod), false) },
		UpdateFunc: func(_, obj any) { seen.take(obj.(*v1.Pod), false) },
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				seen.take(pod, true)
			}
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), registration.HasSynced) {
		s.Fatal("the test ended before its watch had begun")
	}
	return seen
}

func (seen *sightings) take(pod *v1.Pod, deleted bool) {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	now := time.Now()
	at := seen.pods[pod.Name]
	if at == nil {
		at = &sighting{appeared: now}
		seen.pods[pod.Name] = at
	}
	first := func(t *time.Time) {
		if t.IsZero() {
			*t = now
		}
	}
	if deleted || pod.DeletionTimestamp != nil {
		first(&at.gone)
	}
	if pod.Spec.NodeName != "" {
		first(&at.bound)
		at.node = pod.Spec.NodeName
	}
	if node := pod.Status.NominatedNodeName; node != "" && !slices.Contains(at.nominated, node) {
		at.nominated = append(at.nominated, node)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
			first(&at.unschedulable)
			at.why = c.Message
		}
	}
}

// of returns what was seen of the pod of that name so far.
func (seen *sightings) of(pod string) sighting {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if at := seen.pods[pod]; at != nil {
		copied := *at
		copied.nominated = slices.Clone(at.nominated)
		return copied
	}
	return sighting{}
}

// gone returns the names of the pods that terminated or vanished, in alphabetical order.
func (seen *sightings) gone() []string {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var names []string
	for name, at := range seen.pods {
		if !at.gone.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
