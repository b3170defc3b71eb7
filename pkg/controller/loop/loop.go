// Package loop runs the rounds of the controller: when a round starts, in which order it acts, and
// when a failed write is retried. The caller plans each round.
package loop

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

const (
	// settleTime is how long a new leader waits until the last requests of its predecessor are in
	// the caches.
	settleTime = time.Second
	// The next round starts at least minDelay after a round ends, and at least minDelayFactor times
	// the planning time, so that a large cluster uses at most a third of a core. A last moment does
	// not wait for this delay.
	minDelay       = 200 * time.Millisecond
	minDelayFactor = 2
	// If only pods have changed, the delay is at least eventDelayFactor times the planning time, so
	// that a large cluster uses a twentieth of a core. While no pod is moved, it is also at least
	// minDelayIdle. It never exceeds the delay without any event. The change of a node does not
	// wait for this delay.
	minDelayIdle     = time.Second
	eventDelayFactor = 19
	// Without any event the next round starts after maxDelayMoving while pods are moved, and after
	// maxDelayIdle otherwise, because pauses also end with time. Other known times are in
	// Plan.Next.
	maxDelayMoving, maxDelayIdle = time.Second, 5 * time.Second
	// A round that a node's signal triggers waits until no further signal has arrived for
	// signalQuiet, but at most for maxSignalWait.
	signalQuiet, maxSignalWait = 150 * time.Millisecond, time.Second
	// cacheSyncTimeout is how long a leader may wait for its caches. Afterwards the other replica,
	// which may have full caches, should lead.
	cacheSyncTimeout = time.Minute
	// stalledAfter is the time without a round, or with failing rounds only, after which a leader
	// is unhealthy.
	stalledAfter = 2 * time.Minute
)

// Plan contains the actions of one round.
type Plan struct {
	// Writes are the writes, the most urgent of each kind first.
	Writes []Write
	// Move starts the moves and does not wait for them. In a dry run it only logs them. It must not
	// be nil.
	Move func(context.Context)
	// Moving reports whether moves are in progress or have a deadline.
	Moving bool
	// Next is when the next round must start at the latest, because an action is due then; zero
	// means never.
	Next time.Time
}

// Loop plans and acts on the whole cluster in rounds while this replica leads. Its memory between
// rounds only limits requests.
type Loop struct {
	plan        func(now time.Time) (Plan, error)
	synced      <-chan struct{}
	dryRun      bool
	concurrency int

	// changed contains one element if an object has changed since the last round began, and
	// nodeChanged if a node may have received a signal or was deleted.
	changed, nodeChanged chan struct{}
	// mu protects both maps while writes are recorded.
	mu sync.Mutex
	// attempts are the last attempts of the planned writes, by the UID of the object.
	attempts map[types.UID]attempt
	// lastTurn is when a write of a tenant was last attempted.
	lastTurn map[tenant]time.Time
	// roundStart is when the last round began, in nanoseconds since 1970. failingSince is when the
	// first failed round since the last success began; 0 if the last round succeeded. The health
	// check reads both.
	roundStart, failingSince atomic.Int64
}

// New returns a loop that has not started. It starts rounds after synced is closed, which reports
// that the caches are full. In a dry run it only logs the writes. Otherwise it performs up to
// concurrency writes of each kind at a time.
func New(plan func(now time.Time) (Plan, error), synced <-chan struct{}, dryRun bool, concurrency int) *Loop {
	return &Loop{plan: plan, synced: synced, dryRun: dryRun, concurrency: concurrency,
		changed: make(chan struct{}, 1), nodeChanged: make(chan struct{}, 1), attempts: map[types.UID]attempt{}, lastTurn: map[tenant]time.Time{}}
}

// Watch triggers a round after every event of an informer, and an early one if a node may have
// received a signal or was deleted.
func (l *Loop) Watch(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify(l.changed) },
		UpdateFunc: func(before, after any) {
			if n, ok := before.(*v1.Node); ok && node.SignalsDiffer(n, after.(*v1.Node)) {
				notify(l.nodeChanged)
			}
			notify(l.changed)
		},
		DeleteFunc: func(object any) {
			if _, ok := object.(*v1.Node); ok {
				notify(l.nodeChanged)
			}
			notify(l.changed)
		},
	})
	return err
}

// notify puts an element into a channel of capacity one, if it is empty.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one round handles both events
	}
}

// Start runs rounds until ctx is done, as a manager.Runnable. This replica must lead, except in a
// dry run. Start returns an error, which ends the process, if the leader's caches do not sync
// within cacheSyncTimeout. Then another replica can lead.
func (l *Loop) Start(ctx context.Context) error {
	var timeout <-chan time.Time
	if !l.dryRun { // no other replica waits for a dry run
		timeout = time.After(cacheSyncTimeout)
	}
	select {
	case <-l.synced:
	case <-timeout:
		return fmt.Errorf("caches not synced within %s: see the log for the resources that cannot be read", cacheSyncTimeout)
	case <-ctx.Done():
		return nil
	}
	if leader.Sleep(ctx, settleTime) != nil {
		return nil
	}
	for ctx.Err() == nil {
		began := time.Now()
		l.roundStart.Store(began.UnixNano())
		for _, c := range []chan struct{}{l.changed, l.nodeChanged} {
			select {
			case <-c: // the caches already contain this change
			default:
			}
		}
		next, took, moving, err := l.round(ctx, began)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Round failed")
			l.failingSince.CompareAndSwap(0, began.UnixNano())
		} else {
			l.failingSince.Store(0)
		}
		l.awaitNext(ctx, next, took, moving)
	}
	return nil
}

// round plans once and acts. It returns Plan.Next, the planning time, and whether to plan again
// soon. The error may be a panic that no smaller unit recovered. The process continues, because the
// next round may succeed.
func (l *Loop) round(ctx context.Context, began time.Time) (next time.Time, took time.Duration, moving bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(recovery.Round, klog.ObjectRef{}, value)
		}
	}()
	plan, err := l.plan(began)
	took = time.Since(began)
	if err != nil {
		return time.Time{}, took, false, err
	}
	planDuration.Observe(took.Seconds())
	next = plan.Next
	return next, took, l.act(ctx, plan), nil
}

// awaitNext returns when the next round must start, or when ctx is done. The last round returned
// next, took and moving.
func (l *Loop) awaitNext(ctx context.Context, next time.Time, took time.Duration, moving bool) {
	// The delays of a round after the change of a node, after other events, and without any event.
	nodeDelay := max(minDelay, minDelayFactor*took)
	eventDelay, maxDelay := min(max(minDelayIdle, eventDelayFactor*took), maxDelayIdle), maxDelayIdle
	if moving {
		eventDelay, maxDelay = min(eventDelayFactor*took, maxDelayMoving), maxDelayMoving
	}
	eventDelay = max(eventDelay, nodeDelay)
	if !next.IsZero() {
		left := max(time.Until(next), 0)
		nodeDelay, eventDelay, maxDelay = min(nodeDelay, left), min(eventDelay, left), min(maxDelay, left)
	}
	if leader.Sleep(ctx, nodeDelay) != nil {
		return
	}
	select {
	case <-l.nodeChanged:
		l.awaitMoreSignals(ctx, next)
		return
	case <-time.After(eventDelay - nodeDelay):
	case <-ctx.Done():
		return
	}
	select {
	case <-l.changed:
	case <-l.nodeChanged:
		l.awaitMoreSignals(ctx, next)
	case <-time.After(maxDelay - eventDelay):
	case <-ctx.Done():
	}
}

// awaitMoreSignals returns when no node has received a signal for signalQuiet, or after
// maxSignalWait. A cloud reclaims many nodes one after another. A plan that includes only the first
// node would give on-demand room to replicas beyond the floor, although other floors need it. If
// next is not zero, awaitMoreSignals returns by then.
func (l *Loop) awaitMoreSignals(ctx context.Context, next time.Time) {
	wait := maxSignalWait
	if !next.IsZero() {
		wait = min(wait, max(time.Until(next), 0))
	}
	end := time.After(wait)
	for {
		select {
		case <-l.nodeChanged:
		case <-time.After(signalQuiet):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// CheckHealth is a healthz.Checker. A leader is healthy if it runs rounds and not all fail.
func (l *Loop) CheckHealth(*http.Request) error {
	began := l.roundStart.Load()
	if began == 0 {
		return nil
	}
	if ago := time.Since(time.Unix(0, began)); ago > stalledAfter {
		return fmt.Errorf("the last round began %s ago", ago.Round(time.Second))
	}
	if failing := l.failingSince.Load(); failing != 0 {
		if ago := time.Since(time.Unix(0, failing)); ago > stalledAfter {
			return fmt.Errorf("every round has failed for %s: see the log", ago.Round(time.Second))
		}
	}
	return nil
}
