package replicasafety

import (
	"context"
	"errors"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// EventsToRegister lists the node and pod events that can unblock a pod that this plugin refused.
// It lists no owner events: the framework would start a second informer for them, and a hint could
// run before the lister has the change. watch handles the owners.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A node was added. A node became on-demand or changed its pool. An interruption signal was
		// set or cleared. A node was deleted, with pods that used the budget or satisfied the
		// floor. A node matches the pod's own constraints, or no longer.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint |
			fwk.UpdateNodeCondition | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable}, QueueingHintFn: p.afterNode},
		// A sibling was deleted, started to terminate, or was removed from its revision (the last
		// two arrive as general updates only). The pod itself got another owner, other labels or
		// other annotations. An older revision was bound to on-demand.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add | fwk.Delete | fwk.Update}, QueueingHintFn: p.afterPod},
	}, nil
}

func (p *Plugin) afterNode(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, _ := oldObj.(*v1.Node)
	after, _ := newObj.(*v1.Node)
	if before == nil || after == nil {
		return fwk.Queue, nil
	}
	now := p.clock.Now()
	was, _ := p.reader.Read(before, now)
	is, _ := p.reader.Read(after, now)
	return queueIf(was != is || workload.MayAdmitOther(pod, p.volumesOf(pod), before, after)), nil
}

func (p *Plugin) afterPod(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, _ := oldObj.(*v1.Pod)
	after, _ := newObj.(*v1.Pod)
	switch {
	case before != nil && after == nil:
		return queueIf(before.Namespace == pod.Namespace && workload.RevisionOf(before) == workload.RevisionOf(pod)), nil
	case before == nil && after != nil:
		return queueIf(p.owners.OtherRevision(pod, after)), nil
	case before == nil || after == nil:
		return fwk.Queue, nil
	case after.UID == pod.UID:
		// Every attempt changes the pod's status, so a status change alone is not a reason to
		// retry.
		return queueIf(!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)), nil
	}
	left := workload.Live(before) && (!workload.Live(after) || workload.RevisionOf(before) != workload.RevisionOf(after))
	return queueIf(left && before.Namespace == pod.Namespace && workload.RevisionOf(before) == workload.RevisionOf(pod)), nil
}

func queueIf(unblocks bool) fwk.QueueingHint {
	if unblocks {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// watch adds this plugin's handlers to the shared informers. They run after the index of the
// listers is updated, so a pod that they wake sees the change that woke it.
func (p *Plugin) watch(factory informers.SharedInformerFactory) error {
	var errs []error
	add := func(to cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := to.AddEventHandler(handler)
		p.handlers = append(p.handlers, registration)
		errs = append(errs, err)
	}
	for _, owners := range p.owners.Informers() {
		add(owners, p.ownerHandler())
	}
	add(factory.Core().V1().Pods().Informer(), p.podHandler())
	nodes := factory.Core().V1().Nodes().Informer()
	add(nodes, p.reader.EventHandler(func() time.Time { return p.clock.Now() }, p.counter.Events.Add))
	add(nodes, p.nodeHandler())
	add(nodes, p.labels.Handler())
	return errors.Join(errs...)
}

// ownerHandler wakes the pods of an owner if ownerCheck reports them. It reacts if the owner was
// created, scaled, annotated or given another owner, or if a Job made progress.
func (p *Plugin) ownerHandler() informer.Handler[metav1.Object] {
	wake := func(owner metav1.Object) {
		if key, ok := workload.ControllerKey(owner); ok {
			p.waiting.WakeOwned(key, p.ownerCheck)
		}
	}
	return informer.Handler[metav1.Object]{
		Add: wake,
		Update: func(before, after metav1.Object) {
			if before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
				!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
				succeeded(before) != succeeded(after) {
				wake(after)
			}
		},
	}
}

func succeeded(owner metav1.Object) int32 {
	if job, ok := owner.(*batchv1.Job); ok {
		return job.Status.Succeeded
	}
	return 0
}

// podHandler removes pods that no longer wait. It wakes the siblings of a pod whose nomination
// ended. If the replica count of a workload is the number of its pods, it wakes the siblings that
// ownerCheck reports.
func (p *Plugin) podHandler() informer.Handler[*v1.Pod] {
	countChanged := func(pod *v1.Pod) {
		if workload.HasUnsupportedController(pod) {
			p.waiting.WakeOwned(workload.RevisionOf(pod), p.ownerCheck)
		}
	}
	nominationChanged := func(before, after *v1.Pod) {
		if p.nominations.Set(before, after) {
			p.wakeAfterNomination(before)
		}
	}
	// Siblings may have counted a waiting pod as nominated, even if the nomination was not written
	// yet.
	removeWaiting := func(pod *v1.Pod) {
		if p.waiting.Delete(pod.UID) {
			p.waiting.WakeSiblings(workload.RevisionOf(pod))
		}
	}
	return informer.Handler[*v1.Pod]{
		Add: func(pod *v1.Pod) {
			nominationChanged(nil, pod)
			if pod.Spec.NodeName != "" {
				p.waiting.MarkBound(pod.UID, p.gangOf(pod))
			}
			countChanged(pod)
		},
		Update: func(before, after *v1.Pod) {
			nominationChanged(before, after)
			if before.UID != after.UID { // deleted and recreated while the watch was interrupted
				removeWaiting(before)
			}
			if after.Spec.NodeName == "" && !workload.Live(after) { // the scheduler does not retry it
				removeWaiting(after)
			}
			if after.Spec.NodeName != "" && (before.Spec.NodeName == "" || before.UID != after.UID) {
				p.waiting.MarkBound(after.UID, p.gangOf(after))
			}
			if workload.Live(before) != workload.Live(after) || workload.RevisionOf(before) != workload.RevisionOf(after) {
				countChanged(before)
				countChanged(after)
			}
		},
		Delete: func(pod *v1.Pod) {
			removeWaiting(pod)
			nominationChanged(pod, nil)
			countChanged(pod)
		},
	}
}

// nodeHandler wakes waiting pods after a node was deleted. The scheduler wakes them too, but before
// it removes the node from its cache: a fast attempt would still find the siblings there.
func (p *Plugin) nodeHandler() informer.Handler[*v1.Node] {
	return informer.Handler[*v1.Node]{Delete: func(*v1.Node) { p.waiting.WakeAllSiblingsSoon() }}
}
