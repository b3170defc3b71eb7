package integration

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// podRecord records the observations of one pod. Times are when this test received the event; a
// zero time means not yet.
type podRecord struct {
	// appeared is when the pod was first seen.
	appeared time.Time
	// unschedulable is when the pod was first seen with the condition that it is unschedulable. The
	// condition's own transition time can be that of a scheduling gate instead.
	unschedulable time.Time
	// why is the last message of that condition.
	why string
	// bound is when the pod was first seen with a node; node is that node.
	bound time.Time
	node  string
	// nominated lists each node that preemption nominated for the pod, once.
	nominated []string
	// gone is when the pod was first seen terminating or deleted.
	gone time.Time
}

// podRecords records the observations of the pods in a scenario's namespace since the watch
// started.
type podRecords struct {
	mu   sync.Mutex
	pods map[string]*podRecord
}

// watch starts to watch the pods of the scenario's namespace, until the test ends.
func (s *scenario) watch() *podRecords {
	s.Helper()
	seen := &podRecords{pods: map[string]*podRecord{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.namespace))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen.observe(obj.(*v1.Pod), false) },
		UpdateFunc: func(_, obj any) { seen.observe(obj.(*v1.Pod), false) },
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				seen.observe(pod, true)
			}
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), registration.HasSynced) {
		s.Fatal("the test ended before its watch synced")
	}
	return seen
}

func (seen *podRecords) observe(pod *v1.Pod, deleted bool) {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	now := time.Now()
	at := seen.pods[pod.Name]
	if at == nil {
		at = &podRecord{appeared: now}
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

// of returns the record of the named pod.
func (seen *podRecords) of(pod string) podRecord {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if at := seen.pods[pod]; at != nil {
		copied := *at
		copied.nominated = slices.Clone(at.nominated)
		return copied
	}
	return podRecord{}
}

// gone returns the names of the pods that terminated or were deleted, in alphabetical order.
func (seen *podRecords) gone() []string {
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
