// Package failsafe is what other programs do for the controller while no controller leads: the
// scheduler's leader, a standby of the controller, and the controller with the flag --failsafe.
// They remove capacity gates that would block pods, delete PodDisruptionBudgets that would block
// drains, and give released pods back to their ReplicaSets.
package failsafe

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// staleAfter is the time after the last renewal of its Lease after which the controller counts as
// not running. checkEvery is the interval of the checks.
const staleAfter, checkEvery = 5 * time.Minute, 2 * time.Second

// changesPerCheck is how many budgets, and how many pods, the Withdrawer changes before it reads
// the Lease again, because the controller may run again meanwhile. gatesPerCheck is how many gates
// it removes before it checks the rest.
const changesPerCheck, gatesPerCheck = 20, 100

// Withdrawer withdraws what a controller that no longer runs has left. It removes gates, deletes
// the PodDisruptionBudgets, so that no drain waits for it, and restores the pods that it released,
// so that no replica of an old revision serves forever. A controller that starts again recreates
// the budgets.
type Withdrawer struct {
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.WithTicker
	pods     corelisters.PodLister
	releases *Releases
	leads    func() bool
	// gateTimeouts contains the age of a pod at which its gate expires, by scheduler name.
	gateTimeouts   map[string]time.Duration
	longestTimeout time.Duration
	// heldAt contains when a gated pod was last seen with other gates.
	heldAt map[types.UID]time.Time
	// renewed is the renewTime of the Lease, by the clock of the controller. seen is when this
	// process first read that value, by its own clock.
	renewed, seen time.Time
}

// NewWithdrawer returns a Withdrawer that reads from factory. Call it before the factory is
// started. gateTimeouts contains the gateTimeout of each profile, by its scheduler name. While
// leads returns false, another replica leads and nothing is withdrawn.
func NewWithdrawer(
	factory informers.SharedInformerFactory, client kubernetes.Interface, recorder events.EventRecorder, clock clock.WithTicker,
	gateTimeouts map[string]time.Duration, leads func() bool,
) *Withdrawer {
	return &Withdrawer{
		client: client, recorder: recorder, clock: clock, pods: factory.Core().V1().Pods().Lister(), releases: NewReleases(factory), leads: leads,
		gateTimeouts: gateTimeouts, longestTimeout: slices.Max(slices.Collect(maps.Values(gateTimeouts))),
	}
}

// Run checks at intervals until ctx is done.
func (r *Withdrawer) Run(ctx context.Context) {
	ticker := r.clock.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Check for objects without a controller failed, will retry")
		}
	}
}

// check removes expired gates, records since when pods wait, and withdraws everything else if no
// controller has run for staleAfter.
func (r *Withdrawer) check(ctx context.Context) error {
	if !r.leads() {
		return nil
	}
	pods, _ := r.pods.List(labels.Everything()) // a lister of a cache returns no error
	r.removeExpiredGates(ctx, pods)
	r.recordWaits(ctx, pods)
	r.endFormerReleases(ctx, pods)
	budgets, _ := r.releases.budgets.List(labels.Everything())
	budgets = slices.DeleteFunc(budgets, func(b *policyv1.PodDisruptionBudget) bool { return !workload.ManagedDisruptionBudget(b) })
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.DeletionTimestamp != nil || !workload.Released(p) })
	if len(budgets)+len(pods) == 0 {
		return nil
	}
	lease, err := r.client.CoordinationV1().Leases(leader.Namespace()).Get(ctx, leader.Controller, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the controller's Lease: %w", err)
	}
	leased := err == nil && lease.Spec.RenewTime != nil
	stale := leased && r.stale(lease)
	// Without a Lease the age counts, because a controller created the budget or released the pod.
	abandoned := func(since time.Time) bool { return stale || !leased && r.clock.Since(since) >= staleAfter }
	budgets = slices.DeleteFunc(budgets, func(b *policyv1.PodDisruptionBudget) bool { return !abandoned(b.CreationTimestamp.Time) })
	for _, budget := range budgets[:min(len(budgets), changesPerCheck)] {
		err := r.client.PolicyV1().PodDisruptionBudgets(budget.Namespace).Delete(ctx, budget.Name,
			*metav1.NewPreconditionDeleteOptions(string(budget.UID)))
		r.report(ctx, budget, err, spot.ReasonProtectionWithdrawn, "Withdraw", "evictions no longer wait for it")
	}
	requests := 0
	for _, pod := range pods { // in random order, so that no pod that cannot be restored blocks others
		if release, defect := workload.ReadRelease(pod); requests < changesPerCheck && defect == "" && abandoned(release.At) &&
			r.restore(ctx, pod, release) {
			requests++
		}
	}
	return nil
}

// endFormerReleases removes the marks of the originals from copies of released pods, such as
// restored ones. A ReplicaSet that selects such a copy then adopts it. It deletes no pod.
func (r *Withdrawer) endFormerReleases(ctx context.Context, pods []*v1.Pod) {
	requests := 0
	for _, pod := range pods {
		former := workload.FormerRelease(pod)
		if former == nil || requests >= changesPerCheck || !workload.Live(pod) {
			continue
		}
		requests++
		if err := workload.PatchPod(ctx, r.client, pod, former.Restoration(pod)); err != nil {
			klog.FromContext(ctx).V(2).Info("Release of another pod not removed, will retry", "pod", klog.KObj(pod), "err", err)
			continue
		}
		klog.FromContext(ctx).Info("Removed the release of another pod", "pod", klog.KObj(pod))
	}
}

// stale reports whether the controller has not renewed its Lease for staleAfter. The clock of the
// controller may be wrong, so a renewTime that seems old counts only if it did not change for the
// duration of the Lease.
func (r *Withdrawer) stale(lease *coordinationv1.Lease) bool {
	if renewed := lease.Spec.RenewTime.Time; !renewed.Equal(r.renewed) {
		r.renewed, r.seen = renewed, r.clock.Now()
	}
	duration := min(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, math.MaxInt32))*time.Second, staleAfter)
	unchanged := r.clock.Since(r.seen)
	return unchanged >= staleAfter || unchanged >= duration && r.clock.Since(r.renewed) >= staleAfter
}

// report logs the result of a request that withdraws an object, and records an event on success.
func (r *Withdrawer) report(ctx context.Context, object interface {
	runtime.Object
	metav1.Object
}, err error, reason, action, note string) {
	logger := klog.FromContext(ctx).WithValues("object", klog.KObj(object), "reason", reason)
	switch {
	case gone(err):
	case err != nil:
		logger.Error(err, "Failed to withdraw what a controller that no longer runs has left, will retry")
	default:
		logger.Info("Withdrew what a controller that no longer runs has left", "after", staleAfter)
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, reason, action, "spot-controller has not renewed its Lease for %s: %s", staleAfter,
			note)
	}
}

// gone reports whether a request failed because its version of the object no longer exists.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
