package replicasafety

import (
	"context"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// EventsToRegister lists the events of nodes and pods that can unblock a pod which this plugin refused. Those of owners are not among
// them: the framework would open a second, unordered informer for them, and a hint could fire before the lister knows. watch sees them.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A node came; one became on-demand, or changed its pool; a signal on it came or went; a spot node went, and with it what
		// stood there and used up the budget.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint |
			fwk.UpdateNodeCondition | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.afterNode},
		// A sibling on spot went, started to terminate, or was taken out of its revision (these two arrive as general updates only); the pod itself
		// got another owner, labels or annotations; an older revision took on-demand.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add | fwk.Delete | fwk.Update}, QueueingHintFn: p.afterPod},
	}, nil
}

func (p *Plugin) afterNode(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, _ := oldObj.(*v1.Node)
	after, _ := newObj.(*v1.Node)
	if before == nil || after == nil {
		return fwk.Queue, nil
	}
	// Whether others are labelled does not matter to what the labels themselves say.
	now := p.clock.Now()
	was, _ := p.reader.Read(before, false, now)
	is, _ := p.reader.Read(after, false, now)
	if was == is {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func (p *Plugin) afterPod(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, _ := oldObj.(*v1.Pod)
	after, _ := newObj.(*v1.Pod)
	switch {
	case before != nil && after == nil:
		return queueIf(before.Namespace == pod.Namespace && kube.RevisionOf(before) == kube.RevisionOf(pod)), nil
	case before == nil && after != nil:
		return queueIf(p.owners.OtherRevision(pod, after)), nil
	case before == nil || after == nil:
		return fwk.Queue, nil
	case after.UID == pod.UID:
		// Its status changes with every attempt: that alone is no reason for another.
		return queueIf(!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)), nil
	}
	left := kube.Live(before) && (!kube.Live(after) || kube.RevisionOf(before) != kube.RevisionOf(after))
	return queueIf(left && before.Namespace == pod.Namespace && kube.RevisionOf(before) == kube.RevisionOf(pod)), nil
}

func queueIf(unblocks bool) fwk.QueueingHint {
	if unblocks {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// watch adds this plugin's own handlers to the shared informers. They run after the index that the listers read is updated, so a pod
// that they wake sees the change that woke it.
func (p *Plugin) watch(factory informers.SharedInformerFactory) error {
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandlerFuncs) error {
		registration, err := informer.AddEventHandler(handler)
		p.handlers = append(p.handlers, registration)
		return err
	}
	for _, informer := range p.owners.Informers() {
		if err := add(informer, p.ownerHandler()); err != nil {
			return err
		}
	}
	if err := add(factory.Core().V1().Pods().Informer(), p.podHandler()); err != nil {
		return err
	}
	return add(factory.Core().V1().Nodes().Informer(), p.nodeHandler())
}

// ownerHandler wakes the pods of an owner that appeared, was scaled, annotated or given to another owner, or whose Job came further.
func (p *Plugin) ownerHandler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { p.waiting.WakeFor(obj.(metav1.Object).GetUID()) },
		UpdateFunc: func(oldObj, newObj any) {
			before, after := oldObj.(metav1.Object), newObj.(metav1.Object)
			if before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
				!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
				succeeded(oldObj) != succeeded(newObj) {
				p.waiting.WakeFor(after.GetUID())
			}
		},
	}
}

func succeeded(obj any) int32 {
	if job, ok := obj.(*batchv1.Job); ok {
		return job.Status.Succeeded
	}
	return 0
}

// podHandler forgets pods that no longer wait, and wakes the siblings where the number of pods is the number of replicas.
func (p *Plugin) podHandler() cache.ResourceEventHandlerFuncs {
	counted := func(pod *v1.Pod) {
		if kube.CountedByPods(pod) {
			p.waiting.WakeFor(kube.RevisionOf(pod))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { counted(obj.(*v1.Pod)) },
		UpdateFunc: func(oldObj, newObj any) {
			before, after := oldObj.(*v1.Pod), newObj.(*v1.Pod)
			if before.Spec.NodeName == "" && after.Spec.NodeName != "" {
				p.waiting.Forget(after.UID)
			}
			if kube.Live(before) != kube.Live(after) || kube.RevisionOf(before) != kube.RevisionOf(after) {
				counted(before)
				counted(after)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				p.waiting.Forget(pod.UID)
				counted(pod)
			}
		},
	}
}

// nodeHandler reports contradictory labels, tells the counter how nodes end, and wakes waiting pods after a node went: the scheduler wakes them before it
// takes the node out of its cache, so a quick one still finds its siblings there.
func (p *Plugin) nodeHandler() cache.ResourceEventHandlerFuncs {
	contradicts := func(node *v1.Node) bool {
		facts, _ := p.reader.Read(node, false, p.clock.Now())
		return facts.Capacity.Source == decision.FromContradiction
	}
	report := func(node *v1.Node) {
		p.recorder.Eventf(node, nil, v1.EventTypeWarning, kube.ReasonContradictoryLabels, "Scheduling",
			"labels do not say whether this node is spot or on-demand, because they contradict each other "+
				"or because %s has an unknown value: it counts as spot", decision.CapacityLabelKey)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node := obj.(*v1.Node); contradicts(node) {
				report(node)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, node := oldObj.(*v1.Node), newObj.(*v1.Node)
			if contradicts(node) && !contradicts(before) {
				report(node)
			}
			if p.reader.Interrupts(before, node) {
				p.counter.NoteInterruption(node)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if node, ok := obj.(*v1.Node); ok {
				p.noteEnd(node)
			}
			p.waiting.WakeCountedSoon()
		},
	}
}

// noteEnd tells the counter how node ended: the scheduler may have run no cycle since it was announced.
func (p *Plugin) noteEnd(node *v1.Node) {
	now := p.clock.Now()
	if p.reader.Interrupted(node, now) {
		p.counter.NoteInterruption(node)
		return
	}
	if facts, _ := p.reader.Read(node, false, now); facts.Signal >= decision.Drain {
		p.counter.NoteDrained(node)
	}
}
