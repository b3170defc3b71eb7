package safety

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

const (
	// window is the time in which the limits bound the number of moves.
	window = time.Hour
	// margin is how much longer a move counts. Its request may reach the API server so long after
	// it was counted.
	margin = time.Minute
)

// Options configure a Gate.
type Options struct {
	Limits controller.Limits
	// Ledgers is the client of the ledger; nil: the process alone remembers moves. Only a leader
	// may write with it.
	Ledgers corev1.ConfigMapInterface
	// Switches are what users can switch; nil: nothing is paused.
	Switches Switches
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
//   - Another client removes entries from the ledger or makes them unreadable, and a new process
//     reads it before a process that knows them writes it again.
//   - The wall clock of a process that reads the ledger is ahead of the clock of the process that
//     wrote it last. Entries then expire earlier by the difference.
//   - A process is suspended after its last check, and its request arrives more than margin late.
type Gate struct {
	Options
	started time.Time
	// wake interrupts the wait before a write of the ledger.
	wake chan struct{}
	// failing reports whether the last write failed.
	failing atomic.Bool

	mu sync.Mutex
	// entries are the moves that count, by ID.
	entries map[string]*entry
	// unlimited are the newest entries of this process for moves that limits do not bound.
	unlimited map[Cause]*entry
	// withdrawn are the IDs of moves that were counted, but did not start. The ledger may still
	// contain them.
	withdrawn map[string]bool
	// pending are the moves whose requests wait until the ledger contains them.
	pending []*entry
	// writing reports whether a goroutine writes the ledger. changed reports whether the ledger
	// lacks a change that no request waits for.
	writing, changed bool
	// written is when the last write began, as an age of the process.
	written time.Duration
	// stored is the ledger as this process last read or wrote it; nil if that is not known.
	stored *v1.ConfigMap
}

// entry is a line of the ledger.
type entry struct {
	id                  string
	cause               Cause
	namespace, workload string
	// at is when the move was counted, as an age of the process. It is negative for moves of
	// earlier processes.
	at time.Duration
	// n is the number of moves: 1 for a limited one. Others of one cause are counted together for
	// flushInterval.
	n int
	// done receives the result of the write of a limited move of this process; otherwise nil.
	done chan error
}

// NewGate returns a Gate that has not read the ledger yet.
func NewGate(options Options) *Gate {
	return &Gate{
		Options: options, started: options.Clock.Now(), wake: make(chan struct{}, 1), written: -flushInterval,
		entries: map[string]*entry{}, unlimited: map[Cause]*entry{}, withdrawn: map[string]bool{},
	}
}

// LimitError is returned for a move that a limit or a schedule refuses.
type LimitError struct {
	Cause Cause
	// Limit is the name and the value of the field of the configuration.
	Limit string
	// Until is when the next move may start; zero if the configuration must change first.
	Until time.Time
}

// Error implements error.
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
	return g.refusal(newEntry(r))
}

// Allow returns nil if a removal may be requested now. A limited move then counts, and is in the
// ledger. Allow returns a *PausedError while a user has paused the cause, a *LimitError if a limit
// or a schedule refuses the move, and another error if the ledger cannot be written in time.
func (g *Gate) Allow(ctx context.Context, r Removal) error {
	rule, known := Rules[r.Cause]
	if !known {
		return fmt.Errorf("bug: removal with the unknown cause %q", r.Cause)
	}
	if g == nil {
		return nil
	}
	if err := g.paused(r); err != nil || !r.Starts {
		return err
	}
	if !rule.Limited {
		g.countUnlimited(r.Cause)
		return nil
	}
	e := newEntry(r)
	if err := g.count(e); err != nil {
		return err
	}
	var err error
	select {
	case err = <-e.done:
	case <-ctx.Done():
		err = fmt.Errorf("writing the ledger of moves: %w", ctx.Err())
	}
	if err == nil {
		err = g.paused(r) // the write may have taken a second
	}
	if err != nil {
		g.withdraw(e.id)
	}
	return err
}

func (g *Gate) paused(r Removal) error {
	if g.Switches == nil {
		return nil
	}
	if message, paused := g.Switches.Paused(r.Cause); paused {
		return &PausedError{r.Cause, message}
	}
	return nil
}

// answered records the answer of the API server to a removal; nil if there was none. A request that
// the API server has refused starts no move.
func (g *Gate) answered(r Removal, removes bool, response *http.Response) {
	switch {
	case response == nil:
	case response.StatusCode < http.StatusMultipleChoices && removes:
		removals.WithLabelValues(string(r.Cause)).Inc()
	case g != nil && response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError:
		g.withdraw(r.ID)
	}
}

// count counts a limited move, and starts to write the ledger.
func (g *Gate) count(e *entry) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refusal(e); err != nil {
		return err
	}
	if g.Ledgers == nil {
		e.done <- nil
	} else {
		g.pending = append(g.pending, e)
	}
	e.at = g.age()
	g.entries[e.id] = e
	g.startWriting()
	return nil
}

// countUnlimited counts a move that limits do not bound. It waits for nothing.
func (g *Gate) countUnlimited(cause Cause) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.unlimited[cause]
	if e == nil || g.age()-e.at >= flushInterval {
		e = &entry{id: NewID(), cause: cause, namespace: "-", workload: "-", at: g.age()}
		g.unlimited[cause], g.entries[e.id] = e, e
	}
	e.n++
	g.changed = true
	g.startWriting()
}

// withdraw no longer counts a limited move of this process, because it has not started.
func (g *Gate) withdraw(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil && e.done != nil {
		delete(g.entries, id)
		g.withdrawn[id] = true
		g.changed = true
		g.startWriting()
	}
}

// age returns the age of the process.
func (g *Gate) age() time.Duration { return g.Clock.Since(g.started) }
