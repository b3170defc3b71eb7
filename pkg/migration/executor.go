package migration

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// ExecutorSettings bound what an Executor does.
type ExecutorSettings struct {
	// Concurrency is how many pods are worked on at a time, at least 1. How often the API server is asked is bounded by the client.
	Concurrency int
	// RequestTimeout bounds one request: what came of it is looked up then.
	RequestTimeout time.Duration
	// DryRun only says what would be done, once for each pod: nothing is written, events included.
	DryRun bool
	// Wishes learns of replacements that are to require spot: a *gating.Wishes. nil: there are none.
	Wishes Wishes
}

// Wishes has the next new pod of a revision require a capacity type.
type Wishes interface {
	Want(revision kube.OwnerKey, capacity decision.CapacityType, until time.Time)
	Forget(revision kube.OwnerKey)
}

// Times between two tries for one pod. Whatever is tried is planned anew by then, and a deletion at the deadline waits for none of them.
const (
	firstPause = 250 * time.Millisecond
	// longestPause is what kube-apiserver asks for when a budget refuses.
	longestPause = 10 * time.Second
	// unseenFor is how long something done may be missing in the caches before it is looked at again. Every request is safe to repeat.
	unseenFor = 30 * time.Second
	// deniedFor is how long a pod whose release was denied is not to be released: whoever denies it may be mended meanwhile.
	deniedFor = 10 * time.Minute
	// forbiddenFor is after how long a release that was forbidden is asked for again. An API server forbids all when it starts, until it has
	// read the roles: only what is forbidden then too counts as denied.
	forbiddenFor = 10 * time.Second
	// wishedFor is how long the replacement of a released pod may take to be made if it is to require spot. A ReplicaSet makes it within
	// milliseconds, and after failures within seconds.
	wishedFor = time.Minute
)

// Executor performs actions. What it remembers only saves requests: all that matters stands on the objects.
type Executor struct {
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.PassiveClock
	settings ExecutorSettings

	// running are the workers, to be waited for.
	running sync.WaitGroup
	// unmarked logs the first failure of markDisrupted.
	unmarked sync.Once

	mu      sync.Mutex
	workers int
	// queue is what is left of the newest plan.
	queue []Action
	// evicting are the budgets that an eviction is being charged to. Of two at a time the API server would have to try one again.
	evicting map[types.UID]bool
	pods     map[types.UID]*work
	nodes    map[types.UID]*interrupted
}

// NewExecutor returns an Executor. Calls of client must not wait inside for the API server to allow something (WithoutRetries), because
// time is short and there is better to do meanwhile.
func NewExecutor(
	client kubernetes.Interface, recorder events.EventRecorder, clock clock.PassiveClock, settings ExecutorSettings,
) *Executor {
	return &Executor{
		client: client, recorder: recorder, clock: clock, settings: settings,
		evicting: map[types.UID]bool{}, pods: map[types.UID]*work{}, nodes: map[types.UID]*interrupted{},
	}
}

// work is what the executor remembers of a pod, until the pod is gone.
type work struct {
	// action is the last that was begun, without its pod.
	action Action
	state  state
	// since is when state began.
	since time.Time
	// pause is the time between the last try and the next.
	pause time.Duration
	// denied is when its release was; zero if it was not.
	denied time.Time
	// forbidden is when its release was forbidden for the first time of two; zero if the last answer was another.
	forbidden time.Time
	// said are the kinds and refusals that were told, so that each is told once.
	said map[string]bool
}

type state int8

const (
	// idle: nothing is under way.
	idle state = iota
	// asking: a request is under way.
	asking
	// asked: the API server has done it, and the caches do not show it yet.
	asked
	// leaving: the caches show that the pod terminates.
	leaving
	// pausing: it was refused, or nobody knows what came of it; to be tried again.
	pausing
)

// Do starts those actions that are not under way, in their order, and does not wait for them. What an earlier call left to start is
// forgotten: the newest plan counts. When ctx ends, nothing new is started; what is under way goes on.
func (e *Executor) Do(ctx context.Context, actions []Action) {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.queue)
	e.queue = e.queue[:0]
	for _, a := range actions {
		switch {
		case e.settings.DryRun:
			e.pretend(ctx, a)
		case a.Kind == Stay:
			e.stays(ctx, a)
		case e.due(a):
			e.queue = append(e.queue, a)
		}
	}
	for range min(len(e.queue), e.settings.Concurrency-e.workers) {
		e.workers++
		e.running.Go(func() { e.run(ctx) })
	}
}

// Wait returns when no request is under way any more. Nothing is to be started meanwhile.
func (e *Executor) Wait() { e.running.Wait() }

// Observe takes note of what s shows by now, and returns what it does not show yet. It is to be called with every snapshot, before Plan.
func (e *Executor) Observe(s *cluster.Snapshot) Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNodes(s)
	e.observeOverdue(s)
	if len(e.pods) == 0 {
		return nil
	}
	seen := make(map[types.UID]*cluster.Pod, len(e.pods))
	for _, pod := range s.Pods {
		if _, ok := e.pods[pod.UID]; ok {
			seen[pod.UID] = pod
		}
	}
	progress := Progress{}
	for uid, w := range e.pods {
		e.observe(w, seen[uid])
		switch {
		case w.state == asking || w.state == asked:
			progress[uid] = w.action.Kind
		case seen[uid] == nil:
			delete(e.pods, uid)
		case e.clock.Since(w.denied) < deniedFor:
			progress[uid] = Unreleasable
		}
	}
	return progress
}

// observe compares what was asked for with the pod as the caches show it; nil: it is gone.
func (e *Executor) observe(w *work, pod *cluster.Pod) {
	if w.state == idle && w.action.Kind == Release && w.action.Reason == Drain && (pod == nil || pod.DeletionTimestamp != nil) {
		e.count(w.action) // whoever drains its node has evicted it
		w.action = Action{}
	}
	if w.state == leaving && pod == nil {
		e.count(w.action)
		w.become(idle, e.clock.Now())
	}
	if w.state != asked {
		return
	}
	switch removes := w.action.Kind == EvictPod || w.action.Kind == DeletePod; {
	case pod == nil:
		if removes {
			e.count(w.action)
		}
		w.become(idle, e.clock.Now())
	case removes && pod.DeletionTimestamp != nil:
		w.become(leaving, e.clock.Now())
	case w.action.Kind == Release && pod.Release != nil:
		w.become(idle, e.clock.Now())
	case w.action.Kind == Restore && !hidden(pod) && !heldByDeployment(pod):
		e.count(w.action)
		w.become(idle, e.clock.Now())
	case w.action.Kind == Forget && pod.Release == nil:
		w.become(idle, e.clock.Now())
	case e.clock.Since(w.since) >= unseenFor:
		w.become(idle, e.clock.Now())
	}
}

func (w *work) become(s state, now time.Time) { w.state, w.since = s, now }

// begin notes what w is about from now on.
func (w *work) begin(a Action, s state, now time.Time) {
	if w.action.Kind != a.Kind {
		w.pause = 0
	}
	w.action = a
	w.action.Pod = nil // it holds its whole Snapshot, and is remembered for as long as it lives
	w.become(s, now)
}

// tell reports whether something is to be told, and notes that it was.
func (w *work) tell(what string) bool {
	if w.said[what] {
		return false
	}
	if w.said == nil {
		w.said = map[string]bool{}
	}
	w.said[what] = true
	return true
}

// of returns what is remembered of an action's pod.
func (e *Executor) of(a Action) *work {
	w, ok := e.pods[a.Pod.UID]
	if !ok {
		w = &work{}
		e.pods[a.Pod.UID] = w
	}
	return w
}

// due reports whether an action may be started now. What is unlikely to succeed begins to wait when it is asked about first.
func (e *Executor) due(a Action) bool {
	w, now := e.of(a), e.clock.Now()
	if w.state == idle && a.Unlikely {
		w.begin(a, pausing, now)
	}
	switch {
	case w.state == idle:
		return true
	case w.state != pausing:
		return false
	case w.action.Kind != a.Kind:
		return true
	}
	wait := w.pause
	switch {
	case a.Unlikely:
		wait = longestPause
		if w.pause == 0 && !a.Deadline.IsZero() { // not asked yet: once at least, before it is too late
			wait = min(wait, a.Last.Sub(now)/2)
		}
		w.action.Unlikely = true
	case w.action.Unlikely: // no longer
		wait = firstPause
	}
	return now.Sub(w.since) >= wait
}

// run performs what is queued until nothing is.
func (e *Executor) run(ctx context.Context) {
	for {
		a, ok := e.next(ctx)
		if !ok {
			return
		}
		outcome, err := e.perform(ctx, a)
		e.done(ctx, a, outcome, err)
	}
}

// next takes the most urgent action off the queue that may be started now. Without one, the worker has to end: who holds up what is left
// takes it next.
func (e *Executor) next(ctx context.Context) (Action, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.queue, func(a Action) bool { return !e.evicting[a.Budget] })
	if i < 0 || ctx.Err() != nil {
		e.workers--
		return Action{}, false
	}
	a := e.queue[i]
	e.queue = slices.Delete(e.queue, i, i+1)
	e.of(a).begin(a, asking, e.clock.Now())
	if a.Budget != "" {
		e.evicting[a.Budget] = true
	}
	return a, true
}

// perform sends an action's requests.
func (e *Executor) perform(ctx context.Context, a Action) (o outcome, err error) {
	o = unclear
	defer recovery.Recover(recovery.Pod, klog.KObj(a.Pod))
	timeout := e.settings.RequestTimeout
	if a.Kind != DeletePod && !a.Deadline.IsZero() {
		// At its last moment the pod is to be deleted, and a request that hangs until then must be given up.
		timeout = min(timeout, max(a.Last.Sub(e.clock.Now()), time.Second))
	}
	// An eviction that is given up between its charge to the budget and the deletion of the pod leaves the charge: for two minutes the budget
	// allows nothing in its place, this pod's eviction least of all. So a controller that is to end waits for what it has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	switch a.Kind {
	case Release:
		return e.release(ctx, a)
	case Restore:
		return e.restore(ctx, a)
	case Forget:
		return e.forget(ctx, a)
	case EvictPod:
		return e.evict(ctx, a)
	}
	return e.delete(ctx, a)
}

// done takes note of what came of an action, and tells of it.
func (e *Executor) done(ctx context.Context, a Action, o outcome, err error) {
	logger := klog.FromContext(ctx).WithValues(about(a)...)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.evicting, a.Budget)
	w, now := e.of(a), e.clock.Now()
	if o != forbidden {
		w.forbidden = time.Time{}
	} else if w.staysForbidden(a, now) {
		o = denied
	}
	switch o {
	case accepted:
		w.become(asked, now)
		logger.Info("Done", "why", a.Why)
		e.record(a)
	case overtaken:
		w.become(asked, now)
	default:
		w.become(pausing, now)
		w.pause = min(max(2*w.pause, firstPause), longestPause)
		if o == forbidden {
			w.pause = forbiddenFor
		}
		level := 2
		if !w.tell("again: " + string(o)) {
			level = 4 // it is tried up to four times a second
		}
		logger.V(level).Info("To be tried again", "outcome", o, "pause", w.pause, "cause", err)
		if o == denied {
			w.denied = now
			if w.tell(string(o)) {
				logger.Info("Cannot be released", "cause", err)
			}
		}
		if (o == refused || o == barred) && w.tell(string(o)) {
			e.recordBlocked(a, o)
		}
	}
}

// staysForbidden notes that a release was forbidden, and reports whether there is no use in another try: it has been forbidden for long
// enough, or the eviction needs the time that is left.
func (w *work) staysForbidden(a Action, now time.Time) bool {
	if now.Sub(w.forbidden) >= 3*forbiddenFor { // never, or at another time: this is not the second answer to one question
		w.forbidden = now
	}
	return now.Sub(w.forbidden) >= forbiddenFor || !a.Deadline.IsZero() && a.Last.Sub(now) < 2*forbiddenFor
}

// pretend says what would be done.
func (e *Executor) pretend(ctx context.Context, a Action) {
	if a.Kind != Stay && a.Kind != Forget && e.of(a).tell(string(a.Kind)) {
		klog.FromContext(ctx).Info("Would be done", append(about(a), "why", a.Why)...)
		migrations.WithLabelValues(string(a.Way), string(a.Reason), dryRun).Inc()
	}
}

// stays tells why a pod has to stay, once.
func (e *Executor) stays(ctx context.Context, a Action) {
	if e.of(a).tell(string(Stay)) {
		klog.FromContext(ctx).Info("Stays", append(about(a), "why", a.Why)...)
		if a.Reason == Drain {
			e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeWarning, kube.ReasonNotReplacedFirst, "Stay", "Node %s is drained: %s", a.Pod.Node.Name, a.Why)
			return
		}
		e.recorder.Eventf(a.Pod.Pod, nil, v1.EventTypeWarning, kube.ReasonNowhere, "Stay", "Stays on node %s: %s", a.Pod.Node.Name, a.Why)
	}
}
