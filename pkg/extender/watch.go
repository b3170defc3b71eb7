package extender

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// sweepInterval is the interval between checks for pods that no watch event will remove.
	sweepInterval = 10 * time.Second
	// missingTimeout is the time for which an approved pod may be missing from the cache before the
	// extender asks the API server whether it exists.
	missingTimeout = 30 * time.Second
	// maxApproval is the time for which an approval of a pending pod counts. A binding takes at
	// most 25 minutes: a Permit plugin may delay a pod for 15 minutes, and its volumes for 10.
	maxApproval = 30 * time.Minute
	// unknownNodeTimeout is the time for which a pod on an unknown node counts as one on spot.
	unknownNodeTimeout = 10 * time.Second
)

// Watch registers the extender with the informers of factory, which must be the one passed to New.
// synced reports whether the extender has counted their first lists; callers must not decide
// before.
func (e *Extender) Watch(factory informers.SharedInformerFactory) (synced func() bool, err error) {
	var errs []error
	var all []func() bool
	nodes := factory.Core().V1().Nodes()
	labels := node.LabelReporter{Policy: e.policy, Nodes: nodes.Lister(), Recorder: e.recorder, Clock: e.clock}
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := informer.AddEventHandler(handler)
		errs, all = append(errs, err), append(all, registration.HasSynced)
	}
	add(nodes.Informer(), e.nodeHandler())
	add(nodes.Informer(), labels.Handler())
	add(factory.Core().V1().Pods().Informer(), e.podHandler())
	for _, owners := range e.owners.Informers() {
		all = append(all, owners.HasSynced) // the listers read these caches directly, so no handler is needed
	}
	return func() bool {
		return !slices.ContainsFunc(all, func(synced func() bool) bool { return !synced() })
	}, errors.Join(errs...)
}

func (e *Extender) nodeHandler() cache.ResourceEventHandler {
	set := func(node *v1.Node) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cluster.SetNode(node)
	}
	return informer.Handler[*v1.Node]{
		Add:    set,
		Update: func(_, node *v1.Node) { set(node) },
		Delete: func(node *v1.Node) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.cluster.DeleteNode(node.Name)
		},
	}
}

func (e *Extender) podHandler() cache.ResourceEventHandler {
	return informer.Handler[*v1.Pod]{
		Add:    func(pod *v1.Pod) { e.setPod(nil, pod) },
		Update: e.setPod,
		Delete: func(pod *v1.Pod) { e.setPod(pod, nil) },
	}
}

// setPod processes the change of a pod from before to after. before is nil for a new pod, after for
// a deleted pod. In one step, the approval of the pod ends and its binding counts.
func (e *Extender) setPod(before, after *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cluster.SetPod(before, after)
	e.nominations.Set(before, after)
	if before != nil && (after == nil || after.UID != before.UID) {
		e.forget(before.UID)
	}
	if after == nil || after.Spec.NodeName == "" && workload.Live(after) {
		return
	}
	asked := e.forget(after.UID)
	if after.Spec.NodeName == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	e.bindings++
	if !e.cluster.HasNode(after.Spec.NodeName) && workload.Live(after) && workload.PolicyApplies(after) {
		e.asked.put(workload.RevisionOf(after), &askedPod{pod: after, lastAsked: e.clock.Now(), unknownNode: after.Spec.NodeName,
			claim: decision.PlacedPods{Spot: 1}, claimUntil: e.clock.Now().Add(unknownNodeTimeout)})
	}
	if asked == nil || asked.answers == 0 {
		return
	}
	e.cluster.Refresh(e.clock.Now())
	if facts, pool, known := e.cluster.Node(after.Spec.NodeName); known {
		outcome := asked.plan.Outcome(facts, asked.inPools[pool])
		profilemetrics.RecordPlacement(e.profile, facts.Capacity.Type, outcome)
		workload.RecordException(e.recorder, after, outcome, after.Spec.NodeName, &asked.plan) // only for deliberate exceptions
	}
}

// forget removes a pod that is bound or gone. It returns its entry, or nil if it had none.
func (e *Extender) forget(pod types.UID) *askedPod {
	e.waiting.Delete(pod)
	return e.asked.forget(pod)
}

// IsBound reports whether the extender knows that a pod is bound, and counts it.
func (e *Extender) IsBound(pod types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cluster.IsBound(pod)
}

// TakeOver returns when the approvals of earlier leaders are counted. wait returns when every pod
// that was bound up to a second after its call is counted. nominated lists the unbound pods with a
// nomination; the list must not be older than the call.
//
// The scheduler outlives the leaders that it asked, so it may still be binding pods that an earlier
// leader approved. Its client rate limit, which the pods of all profiles share, limits the speed.
// These bindings are over when no pod at all was bound for a second. After atMost, TakeOver returns
// anyway and logs this, because other profiles may bind pods without a pause.
func (e *Extender) TakeOver(ctx context.Context, wait func(context.Context) (time.Duration, error),
	nominated func(context.Context) ([]v1.Pod, error), atMost time.Duration) error {
	// inherit returns how many nominations were not counted before, and all observed bindings.
	inherit := func() (added, bindings int, err error) {
		for {
			pods, err := nominated(ctx)
			if err == nil {
				added, bindings = e.inherit(pods)
				return added, bindings, nil
			}
			klog.FromContext(ctx).Error(err, "Failed to list nominated pods; decisions wait until the list succeeds")
			if err := leader.Sleep(ctx, leader.RetryAfter); err != nil {
				return 0, 0, err
			}
		}
	}
	// Pods that are bound during the wait count as approved only if they were inherited before.
	_, before, err := inherit()
	for deadline := e.clock.Now().Add(atMost); err == nil; {
		if _, err := wait(ctx); err != nil {
			return err
		}
		var added, bindings int
		switch added, bindings, err = inherit(); {
		case err != nil || added == 0 && bindings == before:
			return err
		case !e.clock.Now().Before(deadline):
			klog.FromContext(ctx).Info("Started deciding while pods are still being bound; an earlier leader may have approved some", "waited",
				atMost)
			return nil
		}
		before = bindings
	}
	return err
}

// inherit counts pods whose nodes an earlier leader may have approved and that wait for a step
// before their binding, such as volumes. The scheduler writes a nomination before such steps. It
// returns the number of pods that were not counted before, and of all observed bindings.
func (e *Extender) inherit(nominated []v1.Pod) (added, bindings int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cluster.Refresh(e.clock.Now())
	for i := range nominated {
		pod := &nominated[i]
		_, pool, known := e.cluster.Node(pod.Status.NominatedNodeName)
		// A pod that was bound after the list was made counts already, and no later event would end
		// an approval.
		if !known || e.cluster.IsBound(pod.UID) || !workload.Nominated(pod) || !e.appliesTo(pod) || e.asked.pods[pod.UID] != nil {
			continue
		}
		asked := &askedPod{pod: pod, lastAsked: e.clock.Now()}
		if asked.onSpot = pool.Capacity == decision.Spot; asked.onSpot {
			asked.pools = []decision.SpreadPool{pool}
		}
		asked.onDemand = !asked.onSpot
		e.asked.put(workload.RevisionOf(pod), asked)
		added++
	}
	return added, e.bindings
}

// Approved returns the number of approved pods that are not known to be bound.
func (e *Extender) Approved() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, asked := range e.asked.pods {
		if asked.approved() {
			n++
		}
	}
	return n
}

// Sweep removes, until ctx is done, the pods that no watch event will remove. Some pods were
// deleted before the watch showed them. Others have been pending for so long that no binding can be
// in progress. get asks the API server for a pod.
func (e *Extender) Sweep(ctx context.Context, get func(context.Context, types.NamespacedName) (types.UID, error)) {
	for leader.Sleep(ctx, sweepInterval) == nil {
		e.sweep(ctx, get)
	}
}

func (e *Extender) sweep(ctx context.Context, get func(context.Context, types.NamespacedName) (types.UID, error)) {
	for pod, lastAsked := range e.missing() {
		uid, err := get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		if apierrors.IsNotFound(err) || err == nil && uid != pod.UID {
			e.expire(pod.UID, lastAsked)
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to get pod", "pod", klog.KObj(pod))
		}
	}
}

// missing returns the pods that have been missing in the cache for long, with the time when the
// scheduler last asked about them. It removes the pods whose approval or claim has expired.
func (e *Extender) missing() map[*v1.Pod]time.Time {
	missing := map[*v1.Pod]time.Time{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, asked := range e.asked.pods {
		cached, err := e.pods.Pods(asked.pod.Namespace).Get(asked.pod.Name)
		switch age := e.clock.Since(asked.lastAsked); {
		case asked.unknownNode != "" && age >= unknownNodeTimeout:
			e.forget(uid)
		case age < missingTimeout:
		case err != nil || cached.UID != uid:
			missing[asked.pod] = asked.lastAsked
		case age >= maxApproval && asked.approved():
			e.forget(uid)
		}
	}
	return missing
}

// expire removes a pod unless the scheduler has asked about it since last.
func (e *Extender) expire(pod types.UID, last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if asked := e.asked.pods[pod]; asked != nil && asked.lastAsked.Equal(last) {
		e.forget(pod)
	}
}
