package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

const (
	// settle is how long a new leader waits until the last requests of its predecessor are in the
	// caches.
	settle = time.Second
	// The delay after a round is at least soonest while moves are in flight, and idle otherwise. It
	// is also at least share times the planning time, so that a large cluster uses at most a third
	// of a core. A last moment does not wait for it.
	soonest, idle = 200 * time.Millisecond, time.Second
	share         = 2
	// A round that is triggered by pod events only starts after gentleShare times the planning
	// time, so that a large cluster uses a twentieth of a core, but not later than without any
	// event. The change of a node does not wait for it.
	gentleShare = 19
	// A round that is triggered by a node's signal waits for more signals: gatherFor after each
	// one, at most gatherWithin.
	gatherFor, gatherWithin = 150 * time.Millisecond, time.Second
	// Without any event a round follows after latestMoving or latest, because pauses also end with
	// time. Other known times are in plan.next.
	latestMoving, latest = time.Second, 5 * time.Second
	// writeWithin is how long a round waits for its writes. Writes that did not start in time are
	// planned again.
	writeWithin = 2 * time.Second
	// writeAtLeast is how long it waits although a pod must be deleted in the meantime.
	writeAtLeast = 250 * time.Millisecond
	// budgetsAtOnce is the maximum number of PodDisruptionBudgets that a round writes, so that they
	// do not delay moves and marks.
	budgetsAtOnce = 20
	// costsAtOnce is the maximum number of deletion costs that a round writes: the first rounds in
	// a large cluster plan thousands, and none is urgent.
	costsAtOnce = 10
	// writeAgainAfter is the delay before a failed write is retried. A write of a budget may fail
	// permanently, for example because of a quota of its namespace. Its delay doubles each time, up
	// to budgetAgainAtMost.
	writeAgainAfter   = time.Second
	budgetAgainAtMost = 5 * time.Minute
	// budgetSeenWithin is how long the caches may lack a created budget before the controller
	// creates it again. It may have been deleted before the caches contained it.
	budgetSeenWithin = 30 * time.Second
	// fillWithin is how long a leader may wait for its caches. Afterwards the other replica, which
	// may have full caches, should lead.
	fillWithin = time.Minute
	// stalledAfter is the time without a round, or with failing rounds only, after which a leader
	// is unhealthy.
	stalledAfter = 2 * time.Minute
)

// write is one change of one object, except moves of pods.
type write struct {
	kind writeKind
	// uid and version (resourceVersion) identify the object that the write was planned for. name is
	// for the log.
	uid     types.UID
	version string
	name    klog.ObjectRef
	// why is for the log. It contains the object's events, and is empty without events.
	why   string
	apply func(context.Context) error
}

// writeKind is the kind of a write. It is a label of a metric.
type writeKind string

// All values of writeKind.
const (
	mark         writeKind = "node-mark"
	deletionCost writeKind = "deletion-cost"
	budget       writeKind = "budget"
	// evictionResponse is the status of an Eviction of Kubernetes 1.37.
	evictionResponse writeKind = "eviction-response"
)

// plan is the result of planning one round.
type plan struct {
	// marks, responses, budgets and costs are the writes, the most urgent first. All others precede
	// costs.
	marks, responses, budgets, costs []write
	// move starts the moves and does not wait for them. In a dry run it only logs them.
	move func(context.Context)
	// moving reports whether moves are in flight or have a deadline.
	moving bool
	// next is when the next round must start at the latest, because an action is due then; zero for
	// never.
	next time.Time
}

// loop plans and acts on the whole cluster in rounds while this replica leads. Its memory between
// rounds only limits requests.
type loop struct {
	makePlan func(now time.Time) (plan, error)
	full     <-chan struct{} // closed when the caches are full
	dryRun   bool
	// concurrency is the number of concurrent writes.
	concurrency int

	// contains one element if an object has changed since the last round began
	changed chan struct{}
	urgent  chan struct{} // contains one element if a node has changed
	written map[types.UID]written
	// began is when the last round began, in nanoseconds since 1970. failing is when the first
	// failed round since the last success began; 0 if the last round succeeded. The health check
	// reads both.
	began, failing atomic.Int64
}

// written is a completed or failed write for one version of an object.
type written struct {
	version string
	// again is when the write may be repeated for the same version. It is zero for never: the write
	// succeeded, so the object has another version.
	again time.Time
	// pause is the delay after a failure.
	pause time.Duration
}

func newLoop(makePlan func(time.Time) (plan, error), full <-chan struct{}, dryRun bool, concurrency int) *loop {
	return &loop{makePlan: makePlan, full: full, dryRun: dryRun, concurrency: concurrency,
		changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1), written: map[types.UID]written{}}
}

// watch triggers a round after every event of an informer.
func (l *loop) watch(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { fill(l.changed) },
		UpdateFunc: func(any, any) { fill(l.changed) },
		DeleteFunc: func(any) { fill(l.changed) },
	})
	return err
}

// watchNodes triggers a round at once if a node may have received a signal.
func (l *loop) watchNodes(nodes cache.SharedIndexInformer) error {
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if signalsDiffer(before.(*v1.Node), after.(*v1.Node)) {
			fill(l.urgent)
		}
	}})
	return err
}

// signalsDiffer reports whether a field has changed that can contain a signal. Most updates of
// nodes are heartbeats.
func signalsDiffer(a, b *v1.Node) bool {
	status := func(c v1.NodeCondition) string { return string(c.Type) + string(c.Status) + c.Reason + c.Message }
	return !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) || a.Spec.Unschedulable != b.Spec.Unschedulable ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(a, b v1.Taint) bool { return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect }) ||
		!slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b v1.NodeCondition) bool { return status(a) == status(b) })
}

// fill puts an element into a channel of capacity one, if it is empty.
func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one round handles both events
	}
}

// Start runs rounds until ctx is done, as a manager.Runnable. This replica must lead, except in a
// dry run. Start returns an error, which ends the process, if the leader's caches do not sync
// within fillWithin. Then another replica can lead.
func (l *loop) Start(ctx context.Context) error {
	var late <-chan time.Time
	if !l.dryRun { // no other replica waits for a dry run
		late = time.After(fillWithin)
	}
	select {
	case <-l.full:
	case <-late:
		return fmt.Errorf("caches not synced within %s: see the log for the resources that cannot be read", fillWithin)
	case <-ctx.Done():
		return nil
	}
	if !sleep(ctx, settle) {
		return nil
	}
	for ctx.Err() == nil {
		began := time.Now()
		l.began.Store(began.UnixNano())
		for _, c := range []chan struct{}{l.changed, l.urgent} {
			select {
			case <-c: // the caches already contain this change
			default:
			}
		}
		next, took, moving, err := l.round(ctx, began)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Round failed")
			l.failing.CompareAndSwap(0, began.UnixNano())
		} else {
			l.failing.Store(0)
		}
		l.awaitRound(ctx, next, took, moving)
	}
	return nil
}

// awaitRound returns when the next round must start, or when ctx is done. The last round returned
// next, took and moving.
func (l *loop) awaitRound(ctx context.Context, next time.Time, took time.Duration, moving bool) {
	least := max(soonest, share*took)
	pause, wait := min(max(idle, gentleShare*took), latest), latest
	if moving {
		pause, wait = min(gentleShare*took, latestMoving), latestMoving
	}
	pause = max(pause, least)
	if !next.IsZero() {
		left := max(time.Until(next), 0)
		least, pause, wait = min(least, left), min(pause, left), min(wait, left)
	}
	if !sleep(ctx, least) {
		return
	}
	select {
	case <-l.urgent:
		l.gather(ctx, next)
		return
	case <-time.After(pause - least):
	case <-ctx.Done():
		return
	}
	select {
	case <-l.changed:
	case <-l.urgent:
		l.gather(ctx, next)
	case <-time.After(wait - pause):
	case <-ctx.Done():
	}
}

// gather returns when no node has received a signal for gatherFor, or after gatherWithin. A cloud
// reclaims many nodes one after another. A plan that knows only the first node would give on-demand
// room to replicas beyond the floor, although other floors need it. If next is not zero, gather
// returns by then.
func (l *loop) gather(ctx context.Context, next time.Time) {
	within := gatherWithin
	if !next.IsZero() {
		within = min(within, max(time.Until(next), 0))
	}
	end := time.After(within)
	for {
		select {
		case <-l.urgent:
		case <-time.After(gatherFor):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// round plans once and acts. It returns plan.next, the planning time, and whether to plan again
// soon. The error may be a panic that no smaller unit recovered. The process continues, because the
// next round may succeed.
func (l *loop) round(ctx context.Context, began time.Time) (next time.Time, took time.Duration, moving bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(recovery.Round, klog.ObjectRef{}, value)
		}
	}()
	plan, err := l.makePlan(began)
	took = time.Since(began)
	if err != nil {
		return time.Time{}, took, false, err
	}
	planDuration.Observe(took.Seconds())
	next = plan.next
	return next, took, l.act(ctx, plan), nil
}

// act performs a plan. It reports whether to plan again soon.
func (l *loop) act(ctx context.Context, p plan) (moving bool) {
	l.forget(p)
	now := time.Now()
	marks, budgets, costs := slices.Concat(l.due(p.marks, now), l.due(p.responses, now)), l.due(p.budgets, now), l.due(p.costs, now)
	budgets, costs = budgets[:min(len(budgets), budgetsAtOnce)], costs[:min(len(costs), costsAtOnce)]
	// Moves are first. Marks inform other programs; the scheduler reads the signals itself.
	p.move(ctx)
	wait := writeWithin
	if !p.next.IsZero() { // a last moment does not wait for writes
		wait = min(wait, max(p.next.Sub(now), writeAtLeast))
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	anyFailed := l.write(within, slices.Concat(marks, budgets, costs))
	return p.moving || len(marks)+len(budgets) > 0 || anyFailed
}

// due returns the planned writes that may start now.
func (l *loop) due(planned []write, now time.Time) []write {
	return slices.DeleteFunc(slices.Clone(planned), func(w write) bool {
		last, ok := l.written[w.uid]
		return ok && last.version == w.version && (last.again.IsZero() || now.Before(last.again))
	})
}

// forget removes the memory of writes that are no longer planned.
func (l *loop) forget(p plan) {
	planned := map[types.UID]bool{}
	for _, w := range slices.Concat(p.marks, p.responses, p.budgets, p.costs) {
		planned[w.uid] = true
	}
	maps.DeleteFunc(l.written, func(uid types.UID, _ written) bool { return !planned[uid] })
}

// write performs the writes in order, several at a time, until ctx is done. It reports whether one
// failed.
func (l *loop) write(ctx context.Context, writes []write) (anyFailed bool) {
	logger := klog.FromContext(ctx)
	errs := make([]error, len(writes))
	var group errgroup.Group
	group.SetLimit(l.concurrency)
	started := 0
	for i, w := range writes {
		if ctx.Err() != nil {
			break
		}
		started++
		if l.dryRun {
			errs[i] = errDryRun
			continue
		}
		group.Go(func() error {
			errs[i] = w.try(ctx)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, w := range writes[:started] {
		made := written{version: w.version}
		outcome := done
		values := []any{"kind", w.kind, "object", w.name}
		if w.why != "" {
			values = append(values, "why", w.why)
		}
		switch err := errs[i]; {
		case err == nil:
			if w.kind == budget {
				made.again = time.Now().Add(budgetSeenWithin)
			}
			logger.V(2).Info("Wrote object", values...)
		case errors.Is(err, errDryRun):
			outcome = dryRun
			logger.Info("Would write object (dry run)", values...)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
			// The caches will contain another version, or the object is gone, or it already exists.
			outcome = outdated
			made.again = time.Now().Add(writeAgainAfter)
			logger.V(2).Info("Object not written because it has changed", values...)
		default:
			outcome, anyFailed = failed, true
			made.pause = writeAgainAfter
			if w.kind == budget {
				made.pause = min(max(2*l.written[w.uid].pause, writeAgainAfter), budgetAgainAtMost)
			}
			made.again = time.Now().Add(made.pause)
			logger.Error(err, "Writing failed", values...)
		}
		l.written[w.uid] = made
		writesTotal.WithLabelValues(string(w.kind), outcome).Inc()
	}
	return anyFailed
}

// try applies a write. It returns a panic as an error.
func (w *write) try(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(unitOf[w.kind], w.name, value)
		}
	}()
	return w.apply(ctx)
}

// unitOf is the recovery unit of each kind of write.
var unitOf = map[writeKind]recovery.Unit{mark: recovery.Node, deletionCost: recovery.Pod, budget: recovery.Workload, evictionResponse: recovery.Pod}

// healthy is a healthz.Checker. A leader is healthy if it runs rounds and not all fail.
func (l *loop) healthy(*http.Request) error {
	began := l.began.Load()
	if began == 0 {
		return nil
	}
	if ago := time.Since(time.Unix(0, began)); ago > stalledAfter {
		return fmt.Errorf("the last round began %s ago", ago.Round(time.Second))
	}
	if failing := l.failing.Load(); failing != 0 {
		if ago := time.Since(time.Unix(0, failing)); ago > stalledAfter {
			return fmt.Errorf("every round has failed for %s: see the log", ago.Round(time.Second))
		}
	}
	return nil
}

// sleep reports whether d has passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
