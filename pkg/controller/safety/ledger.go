package safety

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

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
