package loop

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
)

const (
	// writeTimeout is how long a round waits for its writes. Writes that did not start in time are
	// planned again.
	writeTimeout = 2 * time.Second
	// minWriteTimeout is how long it waits although a pod must be deleted in the meantime.
	minWriteTimeout = 250 * time.Millisecond
	// retryDelay is the delay before a failed write is retried. A write may fail permanently, for
	// example because of a quota. Its delay doubles each time, up to maxRetryDelay, which is
	// shorter than the window of the alert for failed writes.
	retryDelay    = time.Second
	maxRetryDelay = 2 * time.Minute
	// unnamedDelay is the delay from which on a write counts as refused although the answer names
	// no webhook and no policy. A starting API server forbids everything until it has loaded the
	// RBAC rules.
	unnamedDelay = 4 * time.Second
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
	// Rank orders the writes of a kind in each turn of the namespaces, the smallest first.
	Rank int
	// Apply sends the request. Several writes are applied at a time.
	Apply func(context.Context) error
	// Refused reports to users that the API server refuses the write. It is called once for each
	// cause, a webhook or a policy; nil reports nothing.
	Refused func(error)
}

// WriteKind is the kind of a write. It is a label of a metric.
type WriteKind string

// All values of WriteKind.
const (
	NodeMark     WriteKind = "node-mark"
	DeletionCost WriteKind = "deletion-cost"
	// Budget is a PodDisruptionBudget.
	Budget WriteKind = "disruption-budget"
)

var kinds = map[WriteKind]struct {
	// unit is what a panic of the write concerns.
	unit recovery.Unit
	// maxPerRound is the maximum number of writes that a round starts, so that they do not delay
	// moves and other kinds. Anyone may request thousands of responses. The first rounds in a large
	// cluster plan thousands of deletion costs, and none is urgent.
	maxPerRound int
}{
	NodeMark: {recovery.Node, 100}, Budget: {recovery.Workload, 20}, DeletionCost: {recovery.Pod, 10},
}

// attempt is a completed or failed write for one version of an object.
type attempt struct {
	version string
	// retryAt is when the write may be repeated for the same version. It is zero for never: the
	// write succeeded, so the object has another version.
	retryAt time.Time
	// delay is the delay after a write that had no effect; 0 after any other.
	delay time.Duration
	// refusedBy is the last reported cause of a refusal.
	refusedBy string
}

// tenant is the namespace of the objects of a kind of write; "" for nodes.
type tenant struct {
	kind      WriteKind
	namespace string
}

func (w *Write) tenant() tenant { return tenant{w.Kind, w.Name.Namespace} }

// act performs a plan. It reports whether to plan again soon.
func (l *Loop) act(ctx context.Context, p Plan) (moving bool) {
	l.forgetUnplanned(p.Writes)
	now := time.Now()
	var due [][]Write
	urgent := false
	for kind := range kinds {
		writes := l.due(p.Writes, kind, now)
		due = append(due, writes)
		urgent = urgent || kind != DeletionCost && len(writes) > 0
	}
	// Moves are first. Marks inform other programs; the scheduler reads the signals itself.
	p.Move(ctx)
	timeout := writeTimeout
	if !p.Next.IsZero() { // a last moment does not wait for writes
		timeout = min(timeout, max(p.Next.Sub(now), minWriteTimeout))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var running errgroup.Group // no kind waits for another
	for _, writes := range due {
		running.Go(func() error { return l.write(ctx, writes) })
	}
	return running.Wait() != nil || p.Moving || urgent
}

// due returns the planned writes of one kind that may start now, at most maxPerRound. Namespaces
// take turns: the one with the lowest rank is first, then the one whose last turn is the longest
// ago. Thus no namespace waits for thousands of writes of another, or for writes of another that
// hang. Within a namespace and a rank, writes that have failed less often come first.
func (l *Loop) due(planned []Write, kind WriteKind, now time.Time) []Write {
	due := slices.DeleteFunc(slices.Clone(planned), func(w Write) bool {
		last, ok := l.attempts[w.UID]
		return w.Kind != kind || ok && last.version == w.Version && (last.retryAt.IsZero() || now.Before(last.retryAt))
	})
	slices.SortStableFunc(due, func(a, b Write) int {
		return cmp.Or(a.Rank-b.Rank, l.lastTurn[a.tenant()].Compare(l.lastTurn[b.tenant()]),
			cmp.Compare(l.attempts[a.UID].delay, l.attempts[b.UID].delay))
	})
	turns.RoundRobin(due, 1, func(w Write) string { return w.Name.Namespace })
	return due[:min(len(due), kinds[kind].maxPerRound)]
}

func (l *Loop) forgetUnplanned(writes []Write) {
	planned, tenants := map[types.UID]bool{}, map[tenant]bool{}
	for _, w := range writes {
		planned[w.UID], tenants[w.tenant()] = true, true
	}
	maps.DeleteFunc(l.lastTurn, func(of tenant, _ time.Time) bool { return !tenants[of] })
	maps.DeleteFunc(l.attempts, func(uid types.UID, _ attempt) bool { return !planned[uid] })
}

// write performs the writes in order, several at a time, until ctx is done. It returns an error if
// a write failed.
func (l *Loop) write(ctx context.Context, writes []Write) error {
	var group errgroup.Group
	group.SetLimit(l.concurrency)
	for _, w := range writes {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			err := ErrDryRun
			if !l.dryRun {
				err = w.try(ctx)
			}
			outcome := l.record(klog.FromContext(ctx), w, err)
			writesTotal.WithLabelValues(string(w.Kind), outcome).Inc()
			if outcome == failed {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

func (l *Loop) record(logger klog.Logger, w Write, err error) (outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := attempt{version: w.Version}
	l.lastTurn[w.tenant()] = time.Now()
	values := []any{"kind", w.Kind, "object", w.Name}
	if w.Why != "" {
		values = append(values, "reason", w.Why)
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
		l.backOff(&last, w.UID)
		logger.V(2).Info("Object not written because it has changed", values...)
	default:
		outcome = failed
		l.backOff(&last, w.UID)
		by := refusal.By(err)
		if by == "" && last.delay >= unnamedDelay && (refusal.Denied(err) || apierrors.IsForbidden(err)) {
			by = "the API server"
		}
		if by != "" && by != last.refusedBy && w.Refused != nil {
			w.Refused(err)
			last.refusedBy = by
		}
		logger.Error(err, "Writing failed", values...)
	}
	l.attempts[w.UID] = last
	return outcome
}

// backOff makes the next attempt wait twice as long as this one did.
func (l *Loop) backOff(a *attempt, uid types.UID) {
	before := l.attempts[uid]
	a.delay, a.refusedBy = min(max(2*before.delay, retryDelay), maxRetryDelay), before.refusedBy
	a.retryAt = time.Now().Add(a.delay)
}

// try applies a write. It returns a panic as an error.
func (w *Write) try(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovery.Report(kinds[w.Kind].unit, w.Name, value)
		}
	}()
	return w.Apply(ctx)
}

// Outcomes of a write. They are a label of a metric.
const (
	done     = "done"
	outdated = "outdated" // the object has changed, or is gone
	failed   = "failed"
	dryRun   = "dry-run"
)

var (
	planDuration = metrics.NewHistogram("controller_plan_duration_seconds",
		"Time that the controller takes to read the whole cluster and to plan, per successful round.",
		basemetrics.ExponentialBuckets(1e-3, 2, 14)) // 1 ms to 8 s
	writesTotal = metrics.NewCounterVec("controller_writes_total",
		"Changes of objects other than moves, by kind ('node-mark', 'budget' for "+
			"the PodDisruptionBudget of a protected Deployment, 'deletion-cost') and by outcome: 'done', 'outdated' (the object had "+
			"changed, and the controller plans again), 'failed', or 'dry-run'.", "kind", "outcome")
)

// RegisterMetrics registers the metrics of the loop. It must be called at most once. All series of
// writes exist from then on with value 0. A series that appears with its first count would show no
// increase.
func RegisterMetrics() {
	legacyregistry.MustRegister(planDuration, writesTotal)
	for kind := range kinds {
		for _, outcome := range []string{done, outdated, failed, dryRun} {
			writesTotal.WithLabelValues(string(kind), outcome).Add(0)
		}
	}
}
