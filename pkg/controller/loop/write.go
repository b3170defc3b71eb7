package loop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

const (
	// writeTimeout is how long a round waits for its writes. Writes that did not start in time are
	// planned again.
	writeTimeout = 2 * time.Second
	// minWriteTimeout is how long it waits although a pod must be deleted in the meantime.
	minWriteTimeout = 250 * time.Millisecond
	// maxBudgetsPerRound is the maximum number of PodDisruptionBudgets that a round writes, so that
	// they do not delay moves and marks.
	maxBudgetsPerRound = 20
	// maxCostsPerRound is the maximum number of deletion costs that a round writes: the first
	// rounds in a large cluster plan thousands, and none is urgent.
	maxCostsPerRound = 10
	// retryDelay is the delay before a failed write is retried. A write of a budget may fail
	// permanently, for example because of a quota of its namespace. Its delay doubles each time, up
	// to maxBudgetRetryDelay.
	retryDelay          = time.Second
	maxBudgetRetryDelay = 5 * time.Minute
	// budgetSyncTimeout is how long the caches may lack a created budget before the controller
	// creates it again. It may have been deleted before the caches contained it.
	budgetSyncTimeout = 30 * time.Second
)

// ErrDryRun is the error of a request that a dry run does not send.
var ErrDryRun = errors.New("dry run: nothing is written")

// Write is one change of one object, except moves of pods.
type Write struct {
	Kind WriteKind
	// UID and Version (resourceVersion) identify the object that the write was planned for. A write
	// that succeeded is not repeated for the same UID and Version. Name is for the log.
	UID     types.UID
	Version string
	Name    klog.ObjectRef
	// Why is for the log. It contains the object's events, and is empty without events.
	Why string
	// Apply sends the request. Several writes are applied at a time.
	Apply func(context.Context) error
}

// WriteKind is the kind of a write. It is a label of a metric.
type WriteKind string

// All values of WriteKind.
const (
	NodeMark     WriteKind = "node-mark"
	DeletionCost WriteKind = "deletion-cost"
	// Budget is a PodDisruptionBudget.
	Budget WriteKind = "budget"
	// EvictionResponse is the status of an Eviction of Kubernetes 1.37.
	EvictionResponse WriteKind = "eviction-response"
)

// unitOf is the recovery unit of each kind of write.
var unitOf = map[WriteKind]recovery.Unit{
	NodeMark: recovery.Node, DeletionCost: recovery.Pod, Budget: recovery.Workload, EvictionResponse: recovery.Pod,
}

// attempt is a completed or failed write for one version of an object.
type attempt struct {
	version string
	// retryAt is when the write may be repeated for the same version. It is zero for never: the
	// write succeeded, so the object has another version.
	retryAt time.Time
	// delay is the delay after a failure.
	delay time.Duration
}

// act performs a plan. It reports whether to plan again soon.
func (l *Loop) act(ctx context.Context, p Plan) (moving bool) {
	l.forgetUnplanned(p)
	now := time.Now()
	marks, budgets, costs := slices.Concat(l.due(p.Marks, now), l.due(p.Responses, now)), l.due(p.Budgets, now), l.due(p.Costs, now)
	budgets, costs = budgets[:min(len(budgets), maxBudgetsPerRound)], costs[:min(len(costs), maxCostsPerRound)]
	// Moves are first. Marks inform other programs; the scheduler reads the signals itself.
	p.Move(ctx)
	timeout := writeTimeout
	if !p.Next.IsZero() { // a last moment does not wait for writes
		timeout = min(timeout, max(p.Next.Sub(now), minWriteTimeout))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	anyFailed := l.write(ctx, slices.Concat(marks, budgets, costs))
	return p.Moving || len(marks)+len(budgets) > 0 || anyFailed
}

// due returns the planned writes that may start now.
func (l *Loop) due(planned []Write, now time.Time) []Write {
	return slices.DeleteFunc(slices.Clone(planned), func(w Write) bool {
		last, ok := l.attempts[w.UID]
		return ok && last.version == w.Version && (last.retryAt.IsZero() || now.Before(last.retryAt))
	})
}

// forgetUnplanned removes the attempts of writes that are no longer planned.
func (l *Loop) forgetUnplanned(p Plan) {
	planned := map[types.UID]bool{}
	for _, w := range slices.Concat(p.Marks, p.Responses, p.Budgets, p.Costs) {
		planned[w.UID] = true
	}
	maps.DeleteFunc(l.attempts, func(uid types.UID, _ attempt) bool { return !planned[uid] })
}

// write performs the writes in order, several at a time, until ctx is done. It reports whether one
// failed.
func (l *Loop) write(ctx context.Context, writes []Write) (anyFailed bool) {
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
			errs[i] = ErrDryRun
			continue
		}
		group.Go(func() error {
			errs[i] = w.try(ctx)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	logger := klog.FromContext(ctx)
	for i, w := range writes[:started] {
		outcome := l.record(logger, w, errs[i])
		writesTotal.WithLabelValues(string(w.Kind), outcome).Inc()
		anyFailed = anyFailed || outcome == failed
	}
	return anyFailed
}

// record logs and remembers an attempt of a write, and returns its outcome.
func (l *Loop) record(logger klog.Logger, w Write, err error) (outcome string) {
	last := attempt{version: w.Version}
	values := []any{"kind", w.Kind, "object", w.Name}
	if w.Why != "" {
		values = append(values, "why", w.Why)
	}
	switch {
	case err == nil:
		outcome = done
		if w.Kind == Budget {
			last.retryAt = time.Now().Add(budgetSyncTimeout)
		}
		logger.V(2).Info("Wrote object", values...)
	case errors.Is(err, ErrDryRun):
		outcome = dryRun
		logger.Info("Would write object (dry run)", values...)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		// The caches will contain another version, or the object is gone, or it already exists.
		outcome = outdated
		last.retryAt = time.Now().Add(retryDelay)
		logger.V(2).Info("Object not written because it has changed", values...)
	default:
		outcome = failed
		last.delay = retryDelay
		if w.Kind == Budget {
			last.delay = min(max(2*l.attempts[w.UID].delay, retryDelay), maxBudgetRetryDelay)
		}
		last.retryAt = time.Now().Add(last.delay)
		logger.Error(err, "Writing failed", values...)
	}
	l.attempts[w.UID] = last
	return outcome
}

// try applies a write. It returns a panic as an error.
func (w *Write) try(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(unitOf[w.Kind], w.Name, value)
		}
	}()
	return w.Apply(ctx)
}
