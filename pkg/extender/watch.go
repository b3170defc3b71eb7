package extender

import (
	"context"
	"fmt"
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
)

// Watch registers the extender with the informers of factory, which must be the one passed to New.
// synced reports whether the extender has counted their first lists; callers must not decide
// before.
func (e *Extender) Watch(factory informers.SharedInformerFactory) (synced func() bool, err error) {
	core := factory.Core().V1()
	var all []func() bool
	for objects, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		core.Nodes().Informer(): e.nodeHandler(),
		core.Pods().Informer():  e.podHandler(),
	} {
		registration, err := objects.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
		all = append(all, registration.HasSynced)
	}
	for _, owners := range e.owners.Informers() {
		// The listers read these caches directly, so no handler is needed to know that they are
		// full.
		all = append(all, owners.HasSynced)
	}
	return func() bool {
		return !slices.ContainsFunc(all, func(synced func() bool) bool { return !synced() })
	}, nil
}

func (e *Extender) nodeHandler() cache.ResourceEventHandler {
	set := func(node *v1.Node) {
		e.index.mu.Lock()
		defer e.index.mu.Unlock()
		e.index.setNode(node, e.clock.Now())
	}
	return informer.Handler[*v1.Node]{
		Add:    set,
		Update: func(_, node *v1.Node) { set(node) },
		Delete: func(node *v1.Node) {
			e.index.mu.Lock()
			defer e.index.mu.Unlock()
			e.index.deleteNode(node.Name, e.clock.Now())
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
	approval, kind := e.countChange(before, after)
	if approval == nil {
		return
	}
	outcome := approval.plan.Outcome(kind.facts, approval.inPool[kind.pool()])
	profilemetrics.RecordPlacement(e.profile, kind.facts.Capacity.Type, outcome)
	workload.RecordException(e.recorder, after, outcome, after.Spec.NodeName, &approval.plan) // only for deliberate exceptions
}

// countChange counts the change of a pod. If the pod was just bound after an approval of this
// extender, it returns the approval and the kind of the pod's node.
func (e *Extender) countChange(before, after *v1.Pod) (approval *pendingPod, on *kind) {
	e.index.mu.Lock()
	defer e.index.mu.Unlock()
	e.index.setPod(before, after, e.clock.Now())
	if before != nil && (after == nil || after.UID != before.UID) {
		e.pending.forget(before.UID)
	}
	if after == nil || after.Spec.NodeName == "" && workload.Live(after) {
		return nil, nil
	}
	if (before == nil || before.Spec.NodeName == "") && after.Spec.NodeName != "" {
		e.bindings.Add(1)
	}
	entry := e.pending.forget(after.UID)
	n := e.index.nodes[after.Spec.NodeName]
	if entry == nil || entry.approvals == 0 || n == nil {
		return nil, nil
	}
	return entry, n.kind
}

// IsBound reports whether the extender knows that a pod is bound, and counts it.
func (e *Extender) IsBound(pod types.UID) bool {
	e.index.mu.RLock()
	defer e.index.mu.RUnlock()
	_, bound := e.index.bound[pod]
	return bound
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
	inherit := func() (int, error) {
		for {
			pods, err := nominated(ctx)
			if err == nil {
				return e.inherit(pods), nil
			}
			klog.FromContext(ctx).Error(err, "Failed to list nominated pods; decisions wait until the list succeeds")
			if err := leader.Sleep(ctx, leader.RetryAfter); err != nil {
				return 0, err
			}
		}
	}
	// Pods that are bound during the wait count as approved only if they were inherited before.
	if _, err := inherit(); err != nil {
		return err
	}
	for deadline := e.clock.Now().Add(atMost); ; {
		before := e.bindings.Load()
		if _, err := wait(ctx); err != nil {
			return err
		}
		added, err := inherit()
		switch {
		case err != nil:
			return err
		case added == 0 && e.bindings.Load() == before:
			return nil
		case !e.clock.Now().Before(deadline):
			klog.FromContext(ctx).Info("Started deciding while pods are still being bound; an earlier leader may have approved some", "waited", atMost)
			return nil
		}
	}
}

// inherit counts pods whose nodes an earlier leader may have approved and that wait for a step
// before their binding, such as volumes. The scheduler writes a nomination before such steps. It
// returns the number of pods that were not counted before.
func (e *Extender) inherit(nominated []v1.Pod) (added int) {
	e.index.mu.Lock()
	defer e.index.mu.Unlock()
	for i := range nominated {
		pod := &nominated[i]
		if _, bound := e.index.bound[pod.UID]; bound {
			continue // bound after the list was made: the index counts it, and no later event would end an approval
		}
		n := e.index.nodes[pod.Status.NominatedNodeName]
		if n == nil || pod.Spec.NodeName != "" || !e.appliesTo(pod) || !workload.Live(pod) || e.pending.get(pod.UID) != nil {
			continue
		}
		facts := n.kind.facts
		onSpot := facts.Capacity.Type == decision.Spot
		entry := &pendingPod{
			pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID, revision: workload.RevisionOf(pod),
			lastAsked: e.clock.Now(), spot: onSpot, onDemand: !onSpot,
		}
		if onSpot {
			entry.pools = map[decision.SpreadPool]bool{n.kind.pool(): true}
		}
		e.pending.put(entry)
		added++
	}
	return added
}

// Approved returns the number of approved pods that are not known to be bound.
func (e *Extender) Approved() (n int) {
	for _, entry := range e.pending.all() {
		if entry.approved() {
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
	now := e.clock.Now()
	e.index.mu.Lock()
	e.index.forgetUnknownNodes(now)
	e.index.mu.Unlock()
	for _, entry := range e.pending.all() {
		age := now.Sub(entry.lastAsked)
		if age < missingTimeout {
			continue
		}
		if pod, err := e.pods.Pods(entry.pod.Namespace).Get(entry.pod.Name); err == nil && pod.UID == entry.uid {
			if age >= maxApproval && entry.approved() {
				e.expire(entry.uid, entry.lastAsked)
			}
			continue
		}
		uid, err := get(ctx, entry.pod)
		if apierrors.IsNotFound(err) || err == nil && uid != entry.uid {
			e.expire(entry.uid, entry.lastAsked)
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to get pod", "pod", entry.pod)
		}
	}
}

// expire removes a pod unless the scheduler has asked about it since last.
func (e *Extender) expire(uid types.UID, last time.Time) {
	e.index.mu.Lock() // blocks decisions
	defer e.index.mu.Unlock()
	if entry := e.pending.get(uid); entry != nil && entry.lastAsked.Equal(last) {
		e.pending.forget(uid)
	}
}
