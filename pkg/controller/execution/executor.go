// Package execution writes to pods. No other package of the controller does, so that limits,
// preconditions and records exist once. test/imports checks it. These are the writes:
//
//	write                          request                       planned by   performed by
//	release, restore, forget       patch                         migration    Executor.Do
//	evict                          eviction                      migration    Executor.Do
//	delete                         patch of the status, delete   migration    Executor.Do
//	deletion cost                  patch                         rebalance    Patch
//	affinity, without the gate     patch                         gating       Patch
//	deletion of a pending pod      delete                        gating       DeletePending
//
// Do performs the actions of a plan concurrently, each once. The requests of the actions are in
// requests.go, and so are single writes, whose caller waits for the answer. results.go finds the
// results of actions in the caches, and events.go reports them.
//
// If the controller does not run, the scheduler restores released pods and removes gates (package
// failsafe).
package execution

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings limit what an Executor does.
type Settings struct {
	// Concurrency is the number of actions of one namespace that are performed at the same time, at
	// least 1. Up to kindFactor times as many of one kind, and up to totalFactor times as many of
	// all, are performed at the same time. The client limits the request rate.
	Concurrency int
	// RequestTimeout limits one request. After a timeout the controller checks the result in the
	// caches.
	RequestTimeout time.Duration
	// DryRun only logs what would be done, once for each pod. Nothing is written, not even events.
	DryRun bool
	// Unchanged is LiveReader.Unchanged of package node. It is called before a removal whose cause
	// is checked (safety.Rule). If it does not confirm the Node that the removal was planned for,
	// the removal is not sent, and is planned again. nil confirms every Node.
	Unchanged func(ctx context.Context, planned *v1.Node, silence bool) (bool, error)
}

// Delays between two attempts for one pod. Each attempt is planned anew. A deletion at the deadline
// does not wait for these delays.
const (
	minPause = 250 * time.Millisecond
	// maxPause is the Retry-After of kube-apiserver when a PodDisruptionBudget refuses.
	maxPause = 10 * time.Second
	// maxDeniedPause is the longest delay of an action without a deadline that the API server
	// denies again and again.
	maxDeniedPause = 2 * time.Minute
	// confirmTimeout is how long the caches may lack the result of an action before it is planned
	// again. Every request is safe to repeat.
	confirmTimeout = 30 * time.Second
	// deniedPause is how long the controller does not try again to release a pod whose release was
	// denied. The cause of the denial may be fixed in the meantime.
	deniedPause = 10 * time.Minute
	// forbiddenPause is how long an action must have been forbidden to count as denied. A starting
	// API server forbids everything until it has loaded the RBAC rules.
	forbiddenPause = 10 * time.Second
)

// With these multiples of the concurrency, actions of one namespace or of one kind that hang, for
// example because of a slow webhook, do not delay others.
const kindFactor, totalFactor = 2, 3

// Executor performs actions. Its memory only saves requests: all required state is on the API
// objects.
type Executor struct {
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.PassiveClock
	settings Settings

	// running counts the workers; Wait waits for them.
	running sync.WaitGroup
	// conditionError makes setDisruptionTarget log only its first failure.
	conditionError sync.Once
	deletedNodes   sync.Map // reads of confirmNode since the last Do, by the name of the node

	mu sync.Mutex
	// workers is the number of goroutines that perform actions. busy counts the actions that are
	// being performed by kind, and busyIn by namespace.
	workers int
	busy    map[migration.Kind]int
	busyIn  map[string]int
	// queue contains the actions of the newest plan that have not started yet.
	queue []migration.Action
	// evicting contains the PodDisruptionBudgets to which an eviction is being charged. With two
	// evictions at a time, the API server would have to retry one.
	evicting map[types.UID]bool
	// refusedAt contains when a PodDisruptionBudget last refused an eviction, for confirmTimeout.
	// While the caches show that the budget allows none, one eviction in this time is enough to
	// find out that the caches are stale.
	refusedAt  map[types.UID]time.Time
	pods       map[types.UID]*work
	nodes      map[types.UID]*interruptedNode
	departures migration.Departures
	// hourly contains what reportStay has reported in the last hour, at most 10,000 reports.
	hourly *cache.LRUExpireCache
}

// New returns an Executor. The client must not wait inside calls for the API server to allow a
// request. Time is short, and other actions can be performed meanwhile.
func New(client kubernetes.Interface, recorder events.EventRecorder, clock clock.PassiveClock, settings Settings) *Executor {
	return &Executor{
		client: client, recorder: recorder, clock: clock, settings: settings,
		busy: map[migration.Kind]int{}, busyIn: map[string]int{}, evicting: map[types.UID]bool{}, refusedAt: map[types.UID]time.Time{},
		pods: map[types.UID]*work{}, nodes: map[types.UID]*interruptedNode{}, departures: migration.Departures{},
		hourly: cache.NewLRUExpireCacheWithClock(10_000, clock),
	}
}

// work is what the executor remembers about a pod until the pod is gone.
type work struct {
	// action is the last action that was started, without its pod.
	action migration.Action
	state  state
	since  time.Time
	// pause is the delay between the last attempt and the next.
	pause time.Duration
	// denied is when the release was denied; zero if it was not.
	denied time.Time
	// forbidden is when an action was forbidden for the first time; zero if the last answer was a
	// different one.
	forbidden time.Time
	// refused reports whether the last eviction was refused or denied, or the last release by a
	// failing webhook.
	refused bool
	// stays is why the pod stays or stayed; "" if it never did.
	stays string
	// reported contains the kinds and refusals that were already reported.
	reported map[string]bool
}

type state int8

const (
	idle state = iota
	// requesting: a request is in flight.
	requesting
	// unconfirmed: the API server performed the action, but the caches do not show the result yet.
	unconfirmed
	// terminating: the caches show that the pod terminates.
	terminating
	// backingOff: the action was refused or its result is unknown. It will be tried again.
	backingOff
)

// Do starts the actions that are not in flight, in order, and does not wait for them. It replaces
// the queue of an earlier call. When ctx ends, no action is started, but actions in flight
// complete.
func (e *Executor) Do(ctx context.Context, actions []migration.Action) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deletedNodes.Clear()
	clear(e.queue)
	e.queue = e.queue[:0]
	maps.DeleteFunc(e.refusedAt, func(_ types.UID, at time.Time) bool { return e.clock.Since(at) >= confirmTimeout })
	limited := map[safety.Cause]int{}
	for _, a := range actions {
		if !e.settings.DryRun {
			e.reportObstacles(a)
		}
		if a.Limited != "" {
			limited[safety.Cause(a.Reason)]++
		}
		switch {
		case e.settings.DryRun:
			e.reportDryRun(ctx, a)
		case a.Kind == migration.Stay:
			e.reportStay(ctx, a)
		case e.isDue(a):
			e.queue = append(e.queue, a)
		}
	}
	setLimited(limited)
	for range min(len(e.queue), totalFactor*e.settings.Concurrency-e.workers) {
		e.workers++
		e.running.Go(func() { e.run(ctx) })
	}
}

// Wait returns when no request is in flight. The caller must not call Do meanwhile.
func (e *Executor) Wait() { e.running.Wait() }

func (w *work) enter(s state, now time.Time) { w.state, w.since = s, now }

func (w *work) begin(a migration.Action, s state, now time.Time) {
	if w.action.Kind != a.Kind {
		w.pause, w.refused = 0, false
	}
	w.action = a
	w.action.Pod = nil // the pod references its whole Snapshot, which would stay in memory
	w.enter(s, now)
}

// firstReport reports whether key is reported for the first time, and records it.
func (w *work) firstReport(key string) bool {
	first := !w.reported[key]
	w.reported[key] = true
	return first
}

func (e *Executor) workFor(pod *snapshot.Pod) *work {
	w, ok := e.pods[pod.UID]
	if !ok {
		w = &work{reported: map[string]bool{}}
		e.pods[pod.UID] = w
	}
	return w
}

// isDue reports whether an action may start now. An action that is likely to be refused starts to
// wait when isDue first sees it.
func (e *Executor) isDue(a migration.Action) bool {
	w, now := e.workFor(a.Pod), e.clock.Now()
	if w.state == idle && a.LikelyRefused {
		w.begin(a, backingOff, now)
	}
	switch {
	case w.state == idle:
		return true
	case w.state != backingOff:
		return false
	case w.action.Kind != a.Kind:
		return true
	}
	wait := w.pause
	switch {
	case a.LikelyRefused:
		wait = maxPause
		if w.pause == 0 && !a.LastMoment.IsZero() { // not tried yet: try a pod of the budget in time
			wait = min(wait, a.LastMoment.Sub(now)/2)
		}
		w.action.LikelyRefused = true
	case w.action.LikelyRefused: // it no longer is
		wait = minPause
	}
	return now.Sub(w.since) >= wait
}

func (e *Executor) run(ctx context.Context) {
	for {
		a, ok := e.next(ctx)
		if !ok {
			return
		}
		outcome, err := e.perform(ctx, a)
		e.finish(ctx, a, outcome, err)
	}
}

// next removes from the queue the most urgent action that may start now. If it returns false, the
// worker must end. Actions that wait for an eviction of the same PodDisruptionBudget, or for others
// of their kind or namespace, are started by the workers that perform those. The next call of Do
// starts actions that wait because of refusedAt.
func (e *Executor) next(ctx context.Context) (migration.Action, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.queue, func(a migration.Action) bool {
		most := e.settings.Concurrency
		_, known := e.refusedAt[a.DisruptionBudget]
		return !e.evicting[a.DisruptionBudget] && !(a.LikelyRefused && known) &&
			e.busyIn[a.Pod.Namespace] < most && e.busy[a.Kind] < kindFactor*most
	})
	if i < 0 || ctx.Err() != nil {
		e.workers--
		return migration.Action{}, false
	}
	a := e.queue[i]
	e.queue = slices.Delete(e.queue, i, i+1)
	e.workFor(a.Pod).begin(a, requesting, e.clock.Now())
	if a.DisruptionBudget != "" {
		e.evicting[a.DisruptionBudget] = true
	}
	e.busy[a.Kind]++
	e.busyIn[a.Pod.Namespace]++
	return a, true
}

func (e *Executor) perform(ctx context.Context, a migration.Action) (o outcome, err error) {
	o = unclear
	defer recovery.Recover(recovery.Pod, klog.KObj(a.Pod))
	timeout := e.settings.RequestTimeout
	if a.Kind != migration.DeletePod && !a.LastMoment.IsZero() {
		// The pod is deleted at its last moment, so a hanging request must be aborted before that.
		timeout = min(timeout, max(a.LastMoment.Sub(e.clock.Now()), time.Second))
	}
	// The request survives the end of the process's context: a controller that stops waits for its
	// requests. If an eviction were aborted after the charge to the PodDisruptionBudget and before
	// the deletion of the pod, the charge would remain for two minutes and block other evictions,
	// first of all a retry for this pod.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	switch a.Kind {
	case migration.Release:
		return e.release(ctx, a)
	case migration.Restore:
		return e.restore(ctx, a)
	case migration.Forget:
		return outcomeOf(Patch(ctx, e.client, a.Pod.Pod, workload.PodPatch{Annotations: map[string]*string{spot.ReleasedAnnotation: nil}}))
	}
	if err := e.confirmNode(ctx, a); err != nil {
		return outcomeOf(err)
	}
	if a.Kind == migration.EvictPod {
		return e.evict(ctx, a)
	}
	return e.delete(ctx, a)
}

var performed = map[migration.Kind]string{
	migration.Release:   "Released pod from its ReplicaSet",
	migration.Restore:   "Restored released pod to its ReplicaSet",
	migration.Forget:    "Removed release annotation from pod",
	migration.EvictPod:  "Evicted pod",
	migration.DeletePod: "Deleted pod",
}

func (e *Executor) finish(ctx context.Context, a migration.Action, o outcome, err error) {
	logger := klog.FromContext(ctx).WithValues(logValues(a)...)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.evicting, a.DisruptionBudget)
	if o == refused {
		e.refusedAt[a.DisruptionBudget] = e.clock.Now()
	}
	e.busy[a.Kind]--
	if e.busyIn[a.Pod.Namespace]--; e.busyIn[a.Pod.Namespace] == 0 {
		delete(e.busyIn, a.Pod.Namespace)
	}
	w, now := e.workFor(a.Pod), e.clock.Now()
	if o != forbidden {
		w.forbidden = time.Time{}
	} else if w.staysForbidden(a, now) {
		o = denied
	}
	by := refusal.By(err)
	switch {
	case o == refused, o == blockedBySeveral:
		by = string(o)
	case o == denied:
		by = cmp.Or(by, "the API server")
	}
	switch o {
	case accepted:
		w.refused = false
		w.enter(unconfirmed, now)
		e.departures.Record(a, now)
		logger.Info(performed[a.Kind], "message", a.Why)
		e.recordEvents(a)
	case gone:
		w.enter(unconfirmed, now)
	default:
		w.enter(backingOff, now)
		longest := maxPause
		if o == denied && a.Deadline.IsZero() {
			longest = maxDeniedPause
		}
		w.pause = min(max(2*w.pause, minPause), longest)
		if o == forbidden {
			w.pause = min(w.pause, forbiddenPause-now.Sub(w.forbidden))
		}
		w.refused = w.refused || by != "" && (a.Kind == migration.EvictPod || a.Kind == migration.Release && o != denied)
		level := 2
		if !w.firstReport("again: " + string(o)) {
			level = 4 // up to four attempts per second
		}
		logger.V(level).Info("Action failed, will retry", "outcome", o, "pause", w.pause, "err", err)
		if o == denied && a.Kind == migration.Release {
			w.denied = now
		}
		if by != "" && w.firstReport(string(a.Kind)+" refused by "+by) {
			e.recordRefused(a, o, by, err)
		}
	}
}

// staysForbidden records that an action was forbidden, and reports whether another attempt is
// pointless: it has been forbidden for long enough, or the eviction needs the remaining time.
func (w *work) staysForbidden(a migration.Action, now time.Time) bool {
	if now.Sub(w.forbidden) >= 3*forbiddenPause { // not the second answer to one attempt
		w.forbidden = now
	}
	return now.Sub(w.forbidden) >= forbiddenPause || !a.LastMoment.IsZero() && a.LastMoment.Sub(w.forbidden) < 2*forbiddenPause
}

// Departures returns the moves that this process has started. The result is valid until the next
// call of Observe, and independent of actions that complete meanwhile.
func (e *Executor) Departures() migration.Departures {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.departures)
}
