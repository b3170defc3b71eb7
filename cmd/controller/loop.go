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
	// settle is how long a new leader leaves to what its predecessor sent last, until it is in the caches.
	settle = time.Second
	// A round follows the one before after at least soonest while something moves, and idle while nothing does; and after at least share times
	// as long as looking took, so that a large cluster costs no more than a third of a core. A last moment does not wait for that.
	soonest, idle = 200 * time.Millisecond, time.Second
	share         = 2
	// A round that only news of pods begin follows after gentleShare times as long as looking took, so that a large cluster costs a
	// twentieth of a core, but not later than it would without any event. A node that changes does not wait for that.
	gentleShare = 19
	// A round that a node's signal begins waits for more signals: for gatherFor after each, for gatherWithin at most.
	gatherFor, gatherWithin = 150 * time.Millisecond, time.Second
	// Without any event a round follows after latestMoving or latest: time passes for pauses too. What has a moment of its own names it in
	// plan.next.
	latestMoving, latest = time.Second, 5 * time.Second
	// writeWithin is how long a round waits for its writes. What is not written by then is planned again.
	writeWithin = 2 * time.Second
	// writeAtLeast is how long it waits although a pod has to be deleted meanwhile.
	writeAtLeast = 250 * time.Millisecond
	// budgetsAtOnce is how many PodDisruptionBudgets a round writes, so that moves and marks come through.
	budgetsAtOnce = 20
	// costsAtOnce is how many deletion costs a round writes: the first rounds in a large cluster have thousands, none of them urgent.
	costsAtOnce = 10
	// writeAgainAfter is how long a write that failed is left alone. That of a budget may fail for good, as by a quota of its namespace: it is
	// left alone for twice as long each time, up to budgetAgainAtMost.
	writeAgainAfter   = time.Second
	budgetAgainAtMost = 5 * time.Minute
	// budgetSeenWithin is how long a created budget may be missing in the caches before the
	// controller creates it again. It may have been deleted before the caches had it.
	budgetSeenWithin = 30 * time.Second
	// fillWithin is how long a leader may wait for its caches: the other replica, whose may be full, could lead meanwhile.
	fillWithin = time.Minute
	// stalledAfter is after how long without a round, or with rounds that all fail, a leader counts as not healthy.
	stalledAfter = 2 * time.Minute
)

// write is one change of one object, other than moving a pod.
type write struct {
	kind writeKind
	// uid and version (resourceVersion) are of the object that it was planned for, name is for the log.
	uid     types.UID
	version string
	name    klog.ObjectRef
	// why is for the log: what is told on the object; empty for what is told nowhere.
	why   string
	apply func(context.Context) error
}

// writeKind is what a write does: the label of a metric.
type writeKind string

// Every writeKind there is.
const (
	mark         writeKind = "node-mark"
	deletionCost writeKind = "deletion-cost"
	budget       writeKind = "budget"
	// evictionResponse is the status of an Eviction of Kubernetes 1.37.
	evictionResponse writeKind = "eviction-response"
)

// plan is what one look at the cluster comes to.
type plan struct {
	// marks, responses, budgets and costs are the writes, the most urgent first. Costs may wait for everything else.
	marks, responses, budgets, costs []write
	// move starts the moves and does not wait for them. In a dry run it tells of them.
	move func(context.Context)
	// moving: something is under way, or has a deadline.
	moving bool
	// next is when there will be something to do whatever happens, and a round is to begin; zero for never.
	next time.Time
}

// loop is the controller: it looks at the whole cluster, plans and acts, again and again, for as long as it leads. What it knows beyond one
// round are limits only.
type loop struct {
	look   func(now time.Time) (plan, error)
	full   <-chan struct{} // closed when the caches are full
	dryRun bool
	// concurrency is how many writes are under way at a time.
	concurrency int

	changed chan struct{} // holds one element when something has changed since the last round began
	urgent  chan struct{} // holds one element when a node has
	written map[types.UID]written
	// began is when the last round began, and failing when the first of the rounds began that have failed since the last success, in
	// nanoseconds since 1970; 0 if there is none. Health is read from both.
	began, failing atomic.Int64
}

// written is a write that was made, or failed, for one version of an object.
type written struct {
	version string
	// again is when it may be made again for the same version. It is zero for never: the write
	// succeeded, and gave the object another version.
	again time.Time
	// pause is how long it is left alone if it failed.
	pause time.Duration
}

func newLoop(look func(time.Time) (plan, error), full <-chan struct{}, dryRun bool, concurrency int) *loop {
	return &loop{look: look, full: full, dryRun: dryRun, concurrency: concurrency,
		changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1), written: map[types.UID]written{}}
}

// watch has a round follow every event of an informer.
func (l *loop) watch(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { fill(l.changed) },
		UpdateFunc: func(any, any) { fill(l.changed) },
		DeleteFunc: func(any) { fill(l.changed) },
	})
	return err
}

// watchNodes has a round follow at once when a node may have been announced to be reclaimed.
func (l *loop) watchNodes(nodes cache.SharedIndexInformer) error {
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if signalsDiffer(before.(*v1.Node), after.(*v1.Node)) {
			fill(l.urgent)
		}
	}})
	return err
}

// signalsDiffer reports whether anything has changed that can be a signal. Most updates of nodes are
// heartbeats.
func signalsDiffer(a, b *v1.Node) bool {
	status := func(c v1.NodeCondition) string { return string(c.Type) + string(c.Status) + c.Reason + c.Message }
	return !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) || a.Spec.Unschedulable != b.Spec.Unschedulable ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(a, b v1.Taint) bool { return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect }) ||
		!slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b v1.NodeCondition) bool { return status(a) == status(b) })
}

// fill has a channel of one element hold it.
func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will be seen with what came before
	}
}

// Start runs until ctx is done, as a manager.Runnable. This replica must lead, unless it only tells what it would do. The error is that of a
// leader whose caches are not full in time: the process is to end, so that another leads.
func (l *loop) Start(ctx context.Context) error {
	var late <-chan time.Time
	if !l.dryRun { // nobody waits for what does not lead
		late = time.After(fillWithin)
	}
	select {
	case <-l.full:
	case <-late:
		return fmt.Errorf("leads since %s without full caches: the log says what cannot be read", fillWithin)
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
			case <-c: // it is in the caches by now
			default:
			}
		}
		next, took, moving, err := l.round(ctx, began)
		least := max(soonest, share*took)
		pause, wait := min(max(idle, gentleShare*took), latest), latest
		if moving {
			pause, wait = min(gentleShare*took, latestMoving), latestMoving
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Round failed")
			l.failing.CompareAndSwap(0, began.UnixNano())
		} else {
			l.failing.Store(0)
		}
		pause = max(pause, least)
		if !next.IsZero() {
			left := max(time.Until(next), 0)
			least, pause, wait = min(least, left), min(pause, left), min(wait, left)
		}
		if !sleep(ctx, least) {
			return nil
		}
		select {
		case <-l.urgent:
			l.gather(ctx, next)
			continue
		case <-time.After(pause - least):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-l.changed:
		case <-l.urgent:
			l.gather(ctx, next)
		case <-time.After(wait - pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// gather returns when no node has got a signal for gatherFor, at the latest after gatherWithin. A
// cloud reclaims many nodes one after the other. A plan that knows only the first of them would give
// the room on on-demand that all floors need to replicas beyond the floor. It does not outlast next,
// if that is not zero.
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

// round plans once and acts. It returns plan.next, how long planning took, and whether there is reason to plan again soon. The error may be a
// panic that nothing smaller recovered: the next round may do better, and a process that ends does not.
func (l *loop) round(ctx context.Context, began time.Time) (next time.Time, took time.Duration, moving bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(recovery.Round, klog.ObjectRef{}, value)
		}
	}()
	plan, err := l.look(began)
	took = time.Since(began)
	if err != nil {
		return time.Time{}, took, false, err
	}
	planDuration.Observe(took.Seconds())
	next = plan.next
	return next, took, l.act(ctx, plan), nil
}

// act does what was planned. It reports whether there is reason to look again soon.
func (l *loop) act(ctx context.Context, p plan) (moving bool) {
	l.forget(p)
	now := time.Now()
	marks, budgets, costs := slices.Concat(l.due(p.marks, now), l.due(p.responses, now)), l.due(p.budgets, now), l.due(p.costs, now)
	budgets, costs = budgets[:min(len(budgets), budgetsAtOnce)], costs[:min(len(costs), costsAtOnce)]
	// Moves come first: a mark tells others what our own scheduler sees for itself.
	p.move(ctx)
	wait := writeWithin
	if !p.next.IsZero() { // a last moment waits for no write
		wait = min(wait, max(p.next.Sub(now), writeAtLeast))
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	anyFailed := l.write(within, slices.Concat(marks, budgets, costs))
	return p.moving || len(marks)+len(budgets) > 0 || anyFailed
}

// due returns those of the planned writes that are to be made now.
func (l *loop) due(planned []write, now time.Time) []write {
	return slices.DeleteFunc(slices.Clone(planned), func(w write) bool {
		last, ok := l.written[w.uid]
		return ok && last.version == w.version && (last.again.IsZero() || now.Before(last.again))
	})
}

// forget forgets the writes that are not planned any more.
func (l *loop) forget(p plan) {
	planned := map[types.UID]bool{}
	for _, w := range slices.Concat(p.marks, p.responses, p.budgets, p.costs) {
		planned[w.uid] = true
	}
	maps.DeleteFunc(l.written, func(uid types.UID, _ written) bool { return !planned[uid] })
}

// write makes the writes in their order, some of them at a time, until ctx is done. It reports whether one failed.
func (l *loop) write(ctx context.Context, writes []write) (anyFailed bool) {
	logger := klog.FromContext(ctx)
	errs := make([]error, len(writes))
	var group errgroup.Group
	group.SetLimit(l.concurrency)
	begun := 0
	for i, w := range writes {
		if ctx.Err() != nil {
			break
		}
		begun++
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
	for i, w := range writes[:begun] {
		made := written{version: w.version}
		outcome := done
		about := []any{"kind", w.kind, "object", w.name}
		if w.why != "" {
			about = append(about, "why", w.why)
		}
		switch err := errs[i]; {
		case err == nil:
			if w.kind == budget {
				made.again = time.Now().Add(budgetSeenWithin)
			}
			logger.V(2).Info("Wrote", about...)
		case errors.Is(err, errDryRun):
			outcome = dryRun
			logger.Info("Would write", about...)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
			// Another version is on its way into the cache, or the object is gone, or there already.
			outcome = outdated
			made.again = time.Now().Add(writeAgainAfter)
			logger.V(2).Info("Not written: the object has changed", about...)
		default:
			outcome, anyFailed = failed, true
			made.pause = writeAgainAfter
			if w.kind == budget {
				made.pause = min(max(2*l.written[w.uid].pause, writeAgainAfter), budgetAgainAtMost)
			}
			made.again = time.Now().Add(made.pause)
			logger.Error(err, "Writing failed", about...)
		}
		l.written[w.uid] = made
		writesTotal.WithLabelValues(string(w.kind), outcome).Inc()
	}
	return anyFailed
}

// try applies a write. A panic is an error.
func (w *write) try(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(unitOf[w.kind], w.name, value)
		}
	}()
	return w.apply(ctx)
}

// unitOf is what a write is about.
var unitOf = map[writeKind]recovery.Unit{mark: recovery.Node, deletionCost: recovery.Pod, budget: recovery.Workload, evictionResponse: recovery.Pod}

// healthy is a healthz.Checker: a leader makes rounds, and they do not all fail.
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
			return fmt.Errorf("every round has failed for %s: the log says why", ago.Round(time.Second))
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
