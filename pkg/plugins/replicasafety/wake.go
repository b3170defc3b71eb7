package replicasafety

import (
	"context"
	"fmt"
	"maps"
	"strings"

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
		// A node came; one became on-demand, or changed its pool; a signal on it came or went; a node went, and with it what
		// stood there and used up the budget, or held the floor.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint |
			fwk.UpdateNodeCondition | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.afterNode},
		// A sibling went, started to terminate, or was taken out of its revision (these two arrive as general updates only); the pod itself
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
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
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
	if err := add(factory.Core().V1().Nodes().Informer(), p.labels.Handler(p.policy)); err != nil {
		return err
	}
	return add(factory.Core().V1().Nodes().Informer(), p.nodeHandler())
}

// ownerHandler wakes pods of an owner that appeared, was scaled, annotated or given to another owner, or whose Job came further: those
// that judge reports.
func (p *Plugin) ownerHandler() cache.ResourceEventHandlerFuncs {
	wake := func(owner metav1.Object) {
		if key, ok := kube.ControllerKey(owner); ok {
			p.waiting.WakeFor(key, p.judge)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { wake(obj.(metav1.Object)) },
		UpdateFunc: func(oldObj, newObj any) {
			before, after := oldObj.(metav1.Object), newObj.(metav1.Object)
			if before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
				!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
				succeeded(oldObj) != succeeded(newObj) {
				wake(after)
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

// podHandler forgets pods that no longer wait. It wakes the siblings of a pod whose nomination ended. Of a pod whose workload has as many
// replicas as pods, it wakes the siblings that judge reports.
func (p *Plugin) podHandler() cache.ResourceEventHandlerFuncs {
	counted := func(pod *v1.Pod) {
		if kube.CountedByPods(pod) {
			p.waiting.WakeFor(kube.RevisionOf(pod), p.judge)
		}
	}
	nominated := func(before, after *v1.Pod) {
		if p.nominations.set(before, after) {
			p.waiting.WakeCounted(kube.RevisionOf(before))
		}
	}
	// What waited may have been counted as nominated by its siblings, also if the nomination was not written yet.
	forget := func(pod *v1.Pod) {
		if p.waiting.Forget(pod.UID) {
			p.waiting.WakeCounted(kube.RevisionOf(pod))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			pod := obj.(*v1.Pod)
			nominated(nil, pod)
			if pod.Spec.NodeName != "" {
				p.waiting.Bound(pod.UID, p.gangOf(pod))
			}
			counted(pod)
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, after := oldObj.(*v1.Pod), newObj.(*v1.Pod)
			nominated(before, after)
			if before.UID != after.UID { // deleted and made anew while the watch was interrupted
				forget(before)
			}
			if after.Spec.NodeName == "" && !kube.Live(after) { // the scheduler does not try it again
				forget(after)
			}
			if after.Spec.NodeName != "" && (before.Spec.NodeName == "" || before.UID != after.UID) {
				p.waiting.Bound(after.UID, p.gangOf(after))
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
				forget(pod)
				nominated(pod, nil)
				counted(pod)
			}
		},
	}
}

// nodeHandler reports capacity labels that make no sense, reports to the counter how nodes ended, and wakes waiting pods after a node was deleted: the
// scheduler wakes them before it
// takes the node out of its cache, so a quick one still finds its siblings there.
func (p *Plugin) nodeHandler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			p.reportLabels(nil, obj.(*v1.Node))
			p.awaitLabel(obj.(*v1.Node))
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, node := oldObj.(*v1.Node), newObj.(*v1.Node)
			if !maps.Equal(before.Labels, node.Labels) {
				p.reportLabels(before, node)
			}
			if event, ok := p.reader.Changed(before, node, p.clock.Now()); ok {
				p.counter.Note(event)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if node, ok := obj.(*v1.Node); ok {
				if event, ok := p.reader.Ended(node, p.clock.Now()); ok {
					p.counter.Note(event)
				}
			}
			p.waiting.WakeCountedSoon()
		},
	}
}

// reportLabels records an event if the capacity labels of after make no sense and those of before, nil for a new node, had another fault or
// none.
func (p *Plugin) reportLabels(before, after *v1.Node) {
	reason, note := p.labelFault(after.Labels)
	if before != nil {
		if _, reported := p.labelFault(before.Labels); note == reported {
			return
		}
	}
	if note != "" {
		p.recorder.Eventf(after, nil, v1.EventTypeWarning, reason, "Scheduling", "%s", note)
	}
}

// awaitLabel records an event, and a line in the log, if a new node still has no capacity label when its grace ends, whether or not anything
// is being scheduled then.
func (p *Plugin) awaitLabel(node *v1.Node) {
	left := kube.GraceLeft(p.policy, node, p.clock.Now())
	if left <= 0 {
		return
	}
	p.clock.AfterFunc(left, func() {
		current, err := p.nodes.Get(node.Name)
		if err != nil || current.UID != node.UID || !p.labels.Seen() {
			return // it is gone, or no node of the cluster was ever labelled, so there was no grace
		}
		capacity := p.policy.Capacity(current.Labels, p.policy.LabelGrace, true)
		if capacity.Source != decision.FromDefault {
			return
		}
		p.logger.Info("Node got no capacity label within its grace", "node", klog.KObj(current), "labelGrace", p.policy.LabelGrace, "capacityType", capacity.Type)
		p.recorder.Eventf(current, nil, v1.EventTypeNormal, kube.ReasonNoLabel, "Scheduling",
			"no capacity label arrived within labelGrace (%s): the node counts as %s", p.policy.LabelGrace, capacity.Type)
	})
}

// labelFault returns what is wrong with the capacity labels of a node, as an event tells it; empty if nothing is.
func (p *Plugin) labelFault(labels map[string]string) (reason, note string) {
	unknown := p.policy.UnknownLabels(labels)
	for i, key := range unknown {
		unknown[i] = key + "=" + labels[key]
	}
	values := strings.Join(unknown, ", ")
	capacity := p.policy.Capacity(labels, 0, false)
	switch contradiction := capacity.Source == decision.FromContradiction; {
	case contradiction && values == "":
		return kube.ReasonContradictoryLabels, "capacity labels contradict each other: the node counts as spot"
	case contradiction:
		return kube.ReasonContradictoryLabels,
			fmt.Sprintf("capacity labels contradict each other or have unknown values (%s): the node counts as spot", values)
	case values != "":
		return kube.ReasonUnknownLabel,
			fmt.Sprintf("ignored unknown values of capacity labels: %s; the node counts as %s by its other labels", values, capacity.Type)
	}
	return "", ""
}
