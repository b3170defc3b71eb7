package extender

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// unknownNodeTimeout is the time for which a pod on an unknown node counts as one on spot.
const unknownNodeTimeout = 10 * time.Second

// Watch registers the extender with the informers of factory, which must be the one passed to New.
// synced reports whether the extender has counted their first lists; callers must not decide
// before.
func (e *Extender) Watch(factory informers.SharedInformerFactory) (synced func() bool, err error) {
	var errs []error
	var all []func() bool
	nodes := factory.Core().V1().Nodes()
	labels := node.LabelReporter{Policy: e.policy, Nodes: nodes.Lister(), Recorder: e.recorder, Clock: e.clock}
	add := func(to cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, err := to.AddEventHandler(handler)
		errs, all = append(errs, err), append(all, registration.HasSynced)
	}
	add(nodes.Informer(), informer.Changes(e.setNode))
	add(nodes.Informer(), labels.Handler())
	add(factory.Core().V1().Pods().Informer(), informer.Changes(e.setPod))
	for _, owners := range e.owners.Informers() {
		all = append(all, owners.HasSynced) // the listers read these caches directly, so no handler is needed
	}
	return func() bool {
		return !slices.ContainsFunc(all, func(synced func() bool) bool { return !synced() })
	}, errors.Join(errs...)
}

// setNode processes the change of a node from before to after. before is nil for a new node, after
// for a deleted node.
func (e *Extender) setNode(before, after *v1.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if after == nil {
		e.cluster.DeleteNode(before.Name)
	} else {
		e.cluster.SetNode(after)
	}
}

// setPod processes the change of a pod from before to after. before is nil for a new pod, after for
// a deleted pod. In one step, the approval of the pod ends and its binding counts.
func (e *Extender) setPod(before, after *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cluster.SetPod(before, after)
	e.nominations.Set(before, after)
	if after != nil && workload.Nominated(after) && (before == nil || before.Status.NominatedNodeName != after.Status.NominatedNodeName) {
		e.placements.Add(1)
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		e.forget(before.UID)
		e.deleted.Set(before.UID, nil, deletedFor)
	}
	if after == nil || after.Spec.NodeName == "" && workload.Live(after) {
		return
	}
	asked := e.forget(after.UID)
	if after.Spec.NodeName == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	e.placements.Add(1)
	if !e.cluster.HasNode(after.Spec.NodeName) && workload.Live(after) && workload.PolicyApplies(after) {
		e.asked[after.UID] = &askedPod{pod: after, revision: workload.RevisionOf(after), unknownNode: after.Spec.NodeName,
			lastAsked: e.clock.Now(), claim: decision.PlacedPods{Spot: 1}, claimUntil: e.clock.Now().Add(unknownNodeTimeout)}
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
	asked := e.asked[pod]
	delete(e.asked, pod)
	return asked
}

// Counts reports whether the extender knows that a pod is bound or nominated, and counts it.
func (e *Extender) Counts(pod types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cluster.IsBound(pod) || e.nominations.HasPod(pod)
}

// TakeOver returns when the approvals of earlier leaders are counted. wait returns after at least a
// second, when every pod that was bound or nominated then is counted.
//
// The scheduler outlives the leaders that it asked, so it may still be binding pods that an earlier
// leader approved. It nominates a pod before a slow step of a binding, such as volumes. Its client
// rate limit, which the pods of all profiles share, limits the speed of the other bindings. They
// are over when no pod at all was bound or nominated during a wait. After atMost, TakeOver returns
// anyway and logs this, because other profiles may bind pods without a pause.
func (e *Extender) TakeOver(ctx context.Context, wait func(context.Context) (time.Duration, error), atMost time.Duration) error {
	for deadline := e.clock.Now().Add(atMost); e.clock.Now().Before(deadline); {
		before := e.placements.Load()
		if _, err := wait(ctx); err != nil || e.placements.Load() == before {
			return err
		}
	}
	klog.FromContext(ctx).Info("Started deciding while pods are still being bound; an earlier leader may have approved some", "waited", atMost)
	return nil
}

// Approved returns the number of approved pods that are not known to be bound.
func (e *Extender) Approved() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	for _, asked := range e.asked {
		if asked.approved(now) {
			n++
		}
	}
	return n
}
