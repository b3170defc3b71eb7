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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

const (
	// sweepEvery is how often pods are looked for that nothing will be heard of any more.
	sweepEvery = 10 * time.Second
	// missingFor is how long an approved pod may be missing from the cache before the API server is asked whether there is such a pod.
	missingFor = 30 * time.Second
	// approvedAtMost is how long an approval of a pod that stays pending counts. The longest that a binding may take in a scheduler are the
	// 15 minutes that a Permit plugin may hold a pod, and 10 for its volumes.
	approvedAtMost = 30 * time.Minute
	// listAgainAfter is the pause after a list that failed.
	listAgainAfter = time.Second
)

// Watch has the extender count what the informers of the factory say that it was made with. synced reports whether their first lists
// have been counted: nothing is to be decided before.
func (e *Extender) Watch(factory informers.SharedInformerFactory) (synced func() bool, err error) {
	core := factory.Core().V1()
	var all []func() bool
	for _, watch := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{core.Nodes().Informer(), e.nodeHandler()},
		{core.Pods().Informer(), e.podHandler()},
	} {
		registration, err := watch.informer.AddEventHandler(watch.handler)
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
		all = append(all, registration.HasSynced)
	}
	for _, informer := range e.owners.Informers() {
		// Listers read their caches, and no handler is needed to know that those are full.
		all = append(all, informer.HasSynced)
	}
	return func() bool {
		return !slices.ContainsFunc(all, func(synced func() bool) bool { return !synced() })
	}, nil
}

func (e *Extender) nodeHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		e.index.mu.Lock()
		defer e.index.mu.Unlock()
		e.index.setNode(obj.(*v1.Node), e.clock.Now())
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if node, ok := last[*v1.Node](obj); ok {
				e.index.mu.Lock()
				defer e.index.mu.Unlock()
				e.index.deleteNode(node.Name, e.clock.Now())
			}
		},
	}
}

func (e *Extender) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { e.setPod(nil, obj.(*v1.Pod)) },
		UpdateFunc: func(oldObj, newObj any) { e.setPod(oldObj.(*v1.Pod), newObj.(*v1.Pod)) },
		DeleteFunc: func(obj any) {
			if pod, ok := last[*v1.Pod](obj); ok {
				e.setPod(pod, nil)
			}
		},
	}
}

// last returns the last state of a deleted object.
func last[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}

// setPod takes over a pod that has changed from before to after; nil for one that is new or gone. Its approval ends in the same moment in
// which it counts where it is.
func (e *Extender) setPod(before, after *v1.Pod) {
	if place := e.count(before, after); place != nil {
		e.placed(after, place)
	}
}

// place is where and why a pod was placed that this extender approved.
type place struct {
	capacity decision.CapacityType
	outcome  decision.Outcome
	asked    *asked
}

// count counts the change of a pod. It returns where the pod was placed if it has just been, as this extender approved.
func (e *Extender) count(before, after *v1.Pod) *place {
	e.index.mu.Lock()
	defer e.index.mu.Unlock()
	e.index.setPod(before, after, e.clock.Now())
	if before != nil && (after == nil || after.UID != before.UID) {
		e.register.forget(before.UID)
	}
	if after == nil || after.Spec.NodeName == "" && kube.Live(after) {
		return nil
	}
	if (before == nil || before.Spec.NodeName == "") && after.Spec.NodeName != "" {
		e.bindings.Add(1)
	}
	entry := e.register.forget(after.UID)
	n := e.index.nodes[after.Spec.NodeName]
	if entry == nil || entry.approvals == 0 || n == nil {
		return nil
	}
	facts := n.kind.facts
	return &place{facts.Capacity.Type, entry.plan.Outcome(facts, entry.inPool[n.kind.pool()]), entry}
}

// Holds reports whether a pod is known to be bound, and counted.
func (e *Extender) Holds(pod types.UID) bool { return e.index.holds(pod) }

// TakeOver returns when what earlier leaders approved is counted. wait returns when every pod is counted that was bound a second after its
// call; nominated lists the pods without a node that are nominated to one, as no older than the call.
//
// The scheduler outlives the leaders that it asked, so it may still be binding what one of them let it bind. It binds as fast as its limit
// of requests allows, which the pods of all profiles share: over when a second has passed in which no pod at all was bound. After atMost it
// begins anyway, with a line in the log: other profiles may go on for ever.
func (e *Extender) TakeOver(ctx context.Context, wait func(context.Context) error, nominated func(context.Context) ([]v1.Pod, error),
	atMost time.Duration) error {
	inherit := func() (int, error) {
		for {
			pods, err := nominated(ctx)
			if err == nil {
				return e.inherit(pods), nil
			}
			klog.FromContext(ctx).Error(err, "Deciding waits until the pods that are nominated to nodes can be listed")
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-e.clock.After(listAgainAfter):
			}
		}
	}
	// Those that are bound while it is waited are counted only if they were seen before.
	if _, err := inherit(); err != nil {
		return err
	}
	for deadline := e.clock.Now().Add(atMost); ; {
		before := e.bindings.Load()
		if err := wait(ctx); err != nil {
			return err
		}
		more, err := inherit()
		switch {
		case err != nil:
			return err
		case more == 0 && e.bindings.Load() == before:
			return nil
		case !e.clock.Now().Before(deadline):
			klog.FromContext(ctx).Info("Deciding begins although pods are still being bound, perhaps some that an earlier leader approved", "waited", atMost)
			return nil
		}
	}
}

// inherit counts pods whose nodes an earlier leader may have approved, and that wait for what comes before their binding: volumes, and
// what else the scheduler writes a nomination for. It returns how many were not counted yet.
func (e *Extender) inherit(nominated []v1.Pod) (more int) {
	e.index.mu.Lock()
	defer e.index.mu.Unlock()
	for i := range nominated {
		pod := &nominated[i]
		if _, bound := e.index.bound[pod.UID]; bound {
			continue // since the list was made: it counts where it is, and nothing would end an approval
		}
		n := e.index.nodes[pod.Status.NominatedNodeName]
		if n == nil || pod.Spec.NodeName != "" || !e.concerns(pod) || !kube.Live(pod) || e.register.get(pod.UID) != nil {
			continue
		}
		facts := n.kind.facts
		onSpot := facts.Capacity.Type == decision.Spot
		entry := &asked{
			pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID, revision: kube.RevisionOf(pod),
			last: e.clock.Now(), spot: onSpot, onDemand: !onSpot,
		}
		if onSpot {
			entry.pools = map[decision.SpreadPool]bool{n.kind.pool(): true}
		}
		e.register.put(entry)
		more++
	}
	return more
}

// Approved returns how many pods may be about to be bound because of an answer.
func (e *Extender) Approved() int {
	approved, _ := e.register.numbers()
	return approved
}

// Sweep forgets, until ctx is done, the pods that nothing will be heard of any more: those that were deleted before the watch told of
// them, and those that have been pending for so long that no binding can be under way. get asks the API server for a pod.
func (e *Extender) Sweep(ctx context.Context, get func(context.Context, types.NamespacedName) (types.UID, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.clock.After(sweepEvery):
		}
		e.sweep(ctx, get)
	}
}

func (e *Extender) sweep(ctx context.Context, get func(context.Context, types.NamespacedName) (types.UID, error)) {
	now := e.clock.Now()
	e.index.mu.Lock()
	e.index.forgetStrays(now)
	e.index.mu.Unlock()
	for _, entry := range e.register.all() {
		age := now.Sub(entry.last)
		if age < missingFor {
			continue
		}
		if pod, err := e.pods.Pods(entry.pod.Namespace).Get(entry.pod.Name); err == nil && pod.UID == entry.uid {
			if age >= approvedAtMost && (entry.spot || entry.onDemand) {
				e.expire(entry.uid, entry.last)
			}
			continue
		}
		uid, err := get(ctx, entry.pod)
		if apierrors.IsNotFound(err) || err == nil && uid != entry.uid {
			e.expire(entry.uid, entry.last)
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "Asking for a pod failed", "pod", entry.pod)
		}
	}
}

// expire forgets a pod unless it was asked about since.
func (e *Extender) expire(uid types.UID, last time.Time) {
	e.index.mu.Lock() // nothing is decided meanwhile
	defer e.index.mu.Unlock()
	if entry := e.register.get(uid); entry != nil && entry.last.Equal(last) {
		e.register.forget(uid)
	}
}
