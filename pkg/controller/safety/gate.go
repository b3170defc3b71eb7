package safety

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

const (
	// window is how long a move counts: the hour that limits bound, and a minute, because its
	// request may reach the API server so long after it was counted.
	window = time.Hour + time.Minute
	// maxWorkload limits the length of a workload's name in the ledger, which tenants choose.
	// Workloads of a namespace with the same beginning count as one.
	maxWorkload = 250
)

// Options configure a Gate.
type Options struct {
	Limits controller.Limits
	// Ledgers is the client of the ledger; nil: the process alone remembers moves. Only a leader
	// may write with it.
	Ledgers corev1.ConfigMapInterface
	Paused  Paused
	// Clock is read for ages of moves in this process (Since, which is monotonic), and for times in
	// the ledger (Now).
	Clock clock.PassiveClock
}

// Gate decides which removals may be requested. It is safe for concurrent use. A nil Gate refuses
// nothing.
//
// A limited move is in the ledger before its request is sent, and each write of the ledger requires
// the version that this process knows. So the limits also hold across restarts and if two processes
// believe that they lead. In no hour do more limited moves start than a limit allows, except in
// these cases, which reset what is known:
//   - Another client removes entries from the ledger or makes them unreadable, and a process that
//     does not know them reads or creates it before one that knows them writes it again.
//   - The wall clock of a process that reads the ledger is ahead of the clock of the process that
//     wrote it last. Entries then expire earlier by the difference.
//   - A process is suspended after its last check, and its request arrives more than a minute late.
//
// A move counts from its last attempt, also if the API server refuses the request. Further attempts
// for the same pod are the same move.
type Gate struct {
	Options
	started time.Time

	mu sync.Mutex
	// moves are the limited moves that count, by the UID of their pods.
	moves map[types.UID]*move

	ledger ledger
}

// move is a limited move, and a value of the ledger.
type move struct {
	// Time is when the move was counted, rounded up. at is the same as an age of this process. It
	// is negative for moves of earlier processes.
	Time metav1.Time `json:"time"`
	at   time.Duration

	Cause     Cause  `json:"cause"`
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`

	// written reports whether the ledger contains the move. refused is why it must not start,
	// although it counts: the ledger had other moves. Only the holder of the ledger uses them.
	written bool
	refused error
}

// NewGate returns a Gate that has not read the ledger yet.
func NewGate(options Options) *Gate {
	return &Gate{Options: options, started: options.Clock.Now(), moves: map[types.UID]*move{},
		ledger: ledger{Weighted: semaphore.NewWeighted(1), began: -writeInterval}}
}

// LimitError is returned for a move that a limit or a schedule refuses.
type LimitError struct {
	Cause Cause
	// Limit is the name and the value of the field of the configuration.
	Limit string
	// Until is when the next move may start; zero if the configuration must change first.
	Until time.Time
}

func (e *LimitError) Error() string {
	if e.Until.IsZero() {
		return fmt.Sprintf("%s: no move (%s) may start", e.Limit, e.Cause)
	}
	return fmt.Sprintf("%s: the next move (%s) may start at %s", e.Limit, e.Cause, e.Until.UTC().Format(time.RFC3339))
}

// Check returns a *LimitError if limits or schedules refuse the start of a move now. It counts
// nothing.
func (g *Gate) Check(r Removal) error {
	if g == nil || !r.Starts || !Rules[r.Cause].Limited {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusal(r.Pod, g.newMove(r))
}

// Allow returns nil if a removal may be requested now. A limited move then counts, and is in the
// ledger. Otherwise Allow returns why: a user has paused the cause, a limit or a schedule refuses
// the move (*LimitError), or the ledger cannot be read or written in time.
func (g *Gate) Allow(ctx context.Context, r Removal) error {
	rule, known := Rules[r.Cause]
	if !known {
		return fmt.Errorf("bug: removal with the unknown cause %q", r.Cause)
	}
	if g == nil {
		return nil
	}
	if g.Paused.Stops(r.Cause) {
		return g.Paused(r.Cause)
	}
	if !r.Starts || !rule.Limited {
		return nil
	}
	if err := g.use(ctx, g.read); err != nil { // so that moves of earlier processes count
		return err
	}
	m, err := g.count(r)
	if err == nil {
		err = g.use(ctx, func(ctx context.Context) error { return g.write(ctx, m) })
	}
	if err == nil && g.Paused.Stops(r.Cause) { // the write takes time
		err = g.Paused(r.Cause)
	}
	return err
}

func (g *Gate) newMove(r Removal) *move {
	workload := url.QueryEscape(r.Workload) // a tenant may write characters that JSON has to escape
	return &move{Cause: r.Cause, Namespace: r.Namespace, Workload: strings.Clone(workload[:min(len(workload), maxWorkload)]), at: g.age()}
}

// count counts a limited move.
func (g *Gate) count(r Removal) (*move, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.newMove(r)
	if err := g.refusal(r.Pod, m); err != nil {
		return nil, err
	}
	g.moves[r.Pod] = m
	return m, nil
}

// refusal returns the *LimitError that refuses the start of a move of a pod now; nil if it may
// start. Other moves count, also if they are not in the ledger yet.
func (g *Gate) refusal(pod types.UID, m *move) error {
	now := g.Clock.Now()
	if Rules[m.Cause].SavesCost {
		for i := range g.Limits.Schedules {
			s := &g.Limits.Schedules[i]
			if until := s.Until(now); until.After(now) {
				return &LimitError{m.Cause, fmt.Sprintf("limits.schedules %q for %s", s.Schedule, s.Duration.Duration), until}
			}
		}
	}
	reason, limited := g.Limits.Reasons[string(m.Cause)]
	if !limited {
		reason = math.MaxInt32
	}
	g.expire()
	for _, limit := range []struct {
		name   string
		most   int32
		counts func(*move) bool
	}{
		{"movesPerHour", g.Limits.MovesPerHour, func(*move) bool { return true }},
		{"movesPerHourPerNamespace", g.Limits.MovesPerHourPerNamespace, func(o *move) bool { return o.Namespace == m.Namespace }},
		{"movesPerHourPerWorkload", g.Limits.MovesPerHourPerWorkload,
			func(o *move) bool { return o.Namespace == m.Namespace && o.Workload == m.Workload }},
		{"reasons." + string(m.Cause), reason, func(o *move) bool { return o.Cause == m.Cause }},
	} {
		moves, oldest := int32(0), g.age()
		for other, o := range g.moves {
			if other != pod && limit.counts(o) {
				moves, oldest = moves+1, min(oldest, o.at)
			}
		}
		if moves < limit.most {
			continue
		}
		refused := &LimitError{Cause: m.Cause, Limit: fmt.Sprintf("limits.%s is %d", limit.name, limit.most)}
		if limit.most > 0 {
			refused.Until = now.Add(oldest + window - g.age())
		}
		return refused
	}
	return nil
}

// expire removes the moves that no longer count.
func (g *Gate) expire() {
	for pod, m := range g.moves {
		if g.age()-m.at >= window {
			delete(g.moves, pod)
		}
	}
}

// age returns the age of the process.
func (g *Gate) age() time.Duration { return g.Clock.Since(g.started) }

// Ledger is the name of the ConfigMap with the limited moves of the last hour: its keys are the
// UIDs of the pods, and its values are JSON. It only adds to what the leader remembers. A value
// that cannot be decoded is ignored.
const Ledger = "spot-controller-ledger"

// writeInterval is the least time between the beginnings of two writes.
const writeInterval = 200 * time.Millisecond

// ledger is what a process knows about the ledger. One request uses it at a time.
type ledger struct {
	*semaphore.Weighted
	// stored is the ConfigMap as it was last read or written; nil if that is not known.
	stored *v1.ConfigMap
	// began is when the last write began, as an age of the process.
	began time.Duration
	// failing reports whether the last use failed.
	failing bool
}

// use calls f while no other request uses the ledger.
func (g *Gate) use(ctx context.Context, f func(context.Context) error) error {
	if g.Ledgers == nil {
		return nil
	}
	if err := g.ledger.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for the ledger of moves: %w", err)
	}
	defer g.ledger.Release(1)
	return f(ctx)
}

// write writes all moves into the ledger, unless it contains m.
func (g *Gate) write(ctx context.Context, m *move) error {
	l := &g.ledger
	for !m.written && m.refused == nil {
		select {
		case <-time.After(l.began + writeInterval - g.age()):
		case <-ctx.Done():
			return fmt.Errorf("writing the ledger of moves: %w", ctx.Err())
		}
		err := g.read(ctx)
		if err != nil {
			return err
		}
		configMap, moves := g.render()
		if !slices.Contains(moves, m) {
			return errors.New("another request moves the pod")
		}
		l.began, l.stored = g.age(), nil // unknown, because a write that fails may have been performed
		if configMap.ResourceVersion == "" {
			configMap, err = g.Ledgers.Create(ctx, configMap, metav1.CreateOptions{})
		} else {
			configMap, err = g.Ledgers.Update(ctx, configMap, metav1.UpdateOptions{})
		}
		switch {
		case err == nil:
			l.stored, l.failing = configMap, false
			ledgerWrites.WithLabelValues("succeeded").Inc()
			for _, m := range moves {
				m.written = true
			}
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			// Another client has changed, created or deleted the ledger.
		default:
			return l.report(fmt.Errorf("writing the ledger of moves: %w", err))
		}
	}
	return m.refused
}

// report returns err. It logs the first of several errors.
func (l *ledger) report(err error) error {
	ledgerWrites.WithLabelValues("failed").Inc()
	if !l.failing {
		klog.Background().Error(err, "Ledger not written; moves that limits bound wait", "configMap", Ledger)
	}
	l.failing = true
	return err
}

// read reads the ledger unless its version is known, and adds its moves.
func (g *Gate) read(ctx context.Context) error {
	if g.ledger.stored != nil {
		return nil
	}
	stored, err := g.Ledgers.Get(ctx, Ledger, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		stored, err = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Ledger, Labels: map[string]string{
			"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller",
		}}}, nil
	}
	if err != nil {
		return g.ledger.report(fmt.Errorf("reading the ledger of moves: %w", err))
	}
	g.ledger.stored = stored
	g.merge(stored.Data)
	return nil
}

// render returns the ledger with all moves. It refuses each move that no longer may start, because
// the ledger had moves of other processes.
func (g *Gate) render() (configMap *v1.ConfigMap, moves []*move) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	configMap = g.ledger.stored.DeepCopy()
	configMap.Data = map[string]string{}
	for pod, m := range g.moves {
		if !m.written {
			m.refused = g.refusal(pod, m)
		}
		// Rounded up, so that no move becomes older with each leader. The wall clock may have been
		// set since m was counted.
		m.Time = metav1.NewTime(g.Clock.Now().Add(m.at - g.age() + time.Second - 1))
		text, _ := json.Marshal(m) // it has no values that JSON lacks
		configMap.Data[string(pod)] = string(text)
		moves = append(moves, m)
	}
	return configMap, moves
}

// merge adds the moves in a ledger. A move of the future counts as of now: a clock was wrong.
// Another client may have added more moves than any limit allows. The rest then does not count.
func (g *Gate) merge(data map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	unreadable := 0
	for pod, text := range data {
		m := &move{written: true}
		if err := json.Unmarshal([]byte(text), m); err != nil || !Rules[m.Cause].Limited {
			unreadable++
			continue
		}
		m.at = g.age() - max(g.Clock.Now().Sub(m.Time.Time), 0)
		if known := g.moves[types.UID(pod)]; known != nil {
			known.at = max(known.at, m.at)
		} else if len(g.moves) < controller.MaxMovesPerHour {
			g.moves[types.UID(pod)] = m
		}
	}
	if unreadable > 0 {
		klog.Background().Info("Ledger entries not readable, and ignored", "configMap", Ledger, "entries", unreadable)
	}
}
