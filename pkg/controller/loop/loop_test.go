package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// synced returns a closed channel: the caches are full.
func synced() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func noMoves(context.Context) {}

// TestRounds checks when rounds start after settleTime, with and without moves and events.
func TestRounds(t *testing.T) {
	for name, test := range map[string]struct {
		plan   Plan
		err    error
		takes  time.Duration // to plan
		events time.Duration // between two; 0: none
		signal time.Duration // when a node gets a signal; 0: never
		nodes  int           // the number of later signals, one every 100 ms
		next   time.Duration // when Plan.Next is; 0: never
		want   []time.Duration
	}{
		"nothing happens": {want: []time.Duration{0, 5 * time.Second, 10 * time.Second}},
		"events":          {events: 300 * time.Millisecond, want: []time.Duration{0, time.Second, 2 * time.Second}},
		"moves":           {plan: Plan{Moving: true}, want: []time.Duration{0, time.Second, 2 * time.Second}},
		"moves and events": {plan: Plan{Moving: true}, events: 50 * time.Millisecond,
			want: []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond}},
		"a rare event": {events: 3 * time.Second, want: []time.Duration{0, 2 * time.Second, 5 * time.Second}}, // the first arrived during settleTime
		"a large cluster with events": {takes: 2 * time.Second, events: 50 * time.Millisecond,
			want: []time.Duration{0, 7 * time.Second, 14 * time.Second}},
		"a large cluster without moves": {takes: 100 * time.Millisecond, events: 50 * time.Millisecond,
			want: []time.Duration{0, 2 * time.Second, 4 * time.Second}},
		"a signal in a large cluster without moves": {takes: 100 * time.Millisecond, events: 50 * time.Millisecond, signal: 520 * time.Millisecond,
			want: []time.Duration{0, 670 * time.Millisecond, 2670 * time.Millisecond}},
		"a signal right after a round": {takes: 100 * time.Millisecond, signal: 150 * time.Millisecond,
			want: []time.Duration{0, 450 * time.Millisecond, 5550 * time.Millisecond}},
		"a signal without other events": {signal: 3 * time.Second, want: []time.Duration{0, 3150 * time.Millisecond, 8150 * time.Millisecond}},
		"signals of many nodes":         {signal: 3 * time.Second, nodes: 4, want: []time.Duration{0, 3550 * time.Millisecond, 8550 * time.Millisecond}},
		"signals without end": {signal: 3 * time.Second, nodes: 1000,
			want: []time.Duration{0, 4 * time.Second, 5200 * time.Millisecond}},
		"a last moment among signals": {signal: 3 * time.Second, nodes: 1000, next: 3300 * time.Millisecond,
			want: []time.Duration{0, 3300 * time.Millisecond, 4500 * time.Millisecond}},
		"a large cluster with moves and events": {plan: Plan{Moving: true}, takes: 300 * time.Millisecond, events: 50 * time.Millisecond,
			want: []time.Duration{0, 1300 * time.Millisecond, 2600 * time.Millisecond}},
		"a signal in a large cluster with moves": {plan: Plan{Moving: true}, takes: 300 * time.Millisecond, events: 50 * time.Millisecond,
			signal: 500 * time.Millisecond, nodes: 0, want: []time.Duration{0, 1050 * time.Millisecond, 2350 * time.Millisecond}},
		"a cluster with moves and events": {plan: Plan{Moving: true}, takes: 20 * time.Millisecond, events: 10 * time.Millisecond,
			want: []time.Duration{0, 400 * time.Millisecond, 800 * time.Millisecond}},
		"a last moment": {plan: Plan{Moving: true}, next: 1500 * time.Millisecond,
			want: []time.Duration{0, time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond}},
		"a last moment among events": {plan: Plan{Moving: true}, next: 250 * time.Millisecond, events: 50 * time.Millisecond,
			want: []time.Duration{0, 200 * time.Millisecond, 250 * time.Millisecond, 450 * time.Millisecond}},
		"a last moment in the middle of a round": {plan: Plan{Moving: true}, next: 50 * time.Millisecond, takes: 100 * time.Millisecond,
			want: []time.Duration{0, 100 * time.Millisecond, 1200 * time.Millisecond}},
		"a last moment in a large cluster": {plan: Plan{Moving: true}, next: 5 * time.Second, takes: time.Second,
			want: []time.Duration{0, 3 * time.Second, 5 * time.Second}},
		"a failure": {err: errors.New("no owner index"), want: []time.Duration{0, 5 * time.Second, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now().Add(settleTime)
				var got []time.Duration
				test.plan.Move = noMoves
				l := New(func(now time.Time) (Plan, error) {
					if got = append(got, now.Sub(began)); len(got) == len(test.want) {
						cancel()
					}
					p := test.plan
					if at := began.Add(test.next); at.After(now) {
						p.Next = at
					}
					time.Sleep(test.takes)
					return p, test.err
				}, synced(), false, 1)
				notify(l.changed) // as the caches do while they fill
				if test.events > 0 {
					go func() {
						for leader.Sleep(ctx, test.events) == nil {
							notify(l.changed)
						}
					}()
				}
				if test.signal > 0 {
					go func() {
						for left := test.nodes; leader.Sleep(ctx, settleTime+test.signal-time.Since(began.Add(-settleTime))) == nil && left >= 0; left-- {
							notify(l.nodeChanged)
							test.signal += 100 * time.Millisecond
						}
					}()
				}
				if err := l.Start(ctx); err != nil {
					t.Fatal(err)
				}
				clustertest.Equal(t, "rounds", test.want, got)
			})
		})
	}
}

func TestNoRoundBeforeTheCachesAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var rounds atomic.Int32
		filled := make(chan struct{})
		l := New(func(time.Time) (Plan, error) { rounds.Add(1); return Plan{Move: noMoves}, nil }, filled, false, 1)
		go l.Start(ctx)
		notify(l.changed)
		time.Sleep(cacheSyncTimeout - time.Nanosecond)
		if n := rounds.Load(); n != 0 || l.CheckHealth(nil) != nil {
			t.Errorf("%d rounds, health: %v; want none, and healthy", n, l.CheckHealth(nil))
		}
		close(filled)
		time.Sleep(settleTime)
		synctest.Wait()
		if n := rounds.Load(); n != 1 {
			t.Errorf("%d rounds when the caches are full, want 1", n)
		}
		cancel()
		synctest.Wait()
	})
}

// A leader whose caches do not sync ends. A dry run does not block another leader and may wait.
func TestCachesNotFull(t *testing.T) {
	for name, test := range map[string]struct {
		dryRun bool
		want   bool // that it ends
	}{
		"leads": {want: true}, "dry run": {dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				err := New(nil, make(chan struct{}), test.dryRun, 1).Start(ctx)
				if took := time.Since(began); (err != nil) != test.want || (took == cacheSyncTimeout) != test.want {
					t.Errorf("ended after %s with %v; want an error: %t, then after %s", took, err, test.want, cacheSyncTimeout)
				}
			})
		})
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hangs := make(chan struct{})
		l := New(func(time.Time) (Plan, error) { <-hangs; return Plan{Move: noMoves}, nil }, synced(), false, 1)
		go l.Start(ctx)
		time.Sleep(settleTime + stalledAfter)
		if err := l.CheckHealth(nil); err != nil {
			t.Errorf("not healthy too early: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := l.CheckHealth(nil); err == nil {
			t.Error("healthy although the round does not end")
		}
		close(hangs)
		cancel()
		synctest.Wait()
	})
}

// Failing rounds do not end the loop but make it unhealthy, for errors and for panics.
func TestFailingRounds(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no owner index") }, "panic": func() error { panic("no owner") },
	} {
		for _, when := range []string{"planning", "acting"} {
			if name == "error" && when == "acting" {
				continue // acting never returns an error
			}
			t.Run(name+" while "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					var rounds, broken atomic.Int32
					broken.Store(1)
					l := New(func(time.Time) (Plan, error) {
						rounds.Add(1)
						p := Plan{Move: noMoves}
						if broken.Load() == 0 {
							return p, nil
						}
						if when == "planning" {
							return p, fail()
						}
						p.Move = func(context.Context) { _ = fail() }
						return p, nil
					}, synced(), false, 1)
					go l.Start(ctx)
					time.Sleep(settleTime + stalledAfter)
					if err := l.CheckHealth(nil); err != nil || rounds.Load() < 10 {
						t.Errorf("%d rounds, health %v; want more, and healthy so early", rounds.Load(), err)
					}
					time.Sleep(maxDelayIdle + time.Second)
					if l.CheckHealth(nil) == nil {
						t.Error("healthy although every round fails")
					}
					broken.Store(0)
					time.Sleep(maxDelayIdle + time.Second)
					if err := l.CheckHealth(nil); err != nil {
						t.Errorf("not healthy although rounds succeed: %v", err)
					}
					cancel()
					synctest.Wait()
				})
			})
		}
	}
}

// A write that panics counts as failed.
func TestPanickingWrite(t *testing.T) {
	w := &writer{made: map[types.UID]int{}}
	broken := Write{Kind: NodeMark, UID: "bad", Version: "1", Apply: func(context.Context) error { panic("no annotations") }}
	l := New(nil, nil, false, 1)
	if !l.act(t.Context(), Plan{Writes: []Write{broken, w.write("n", "1")}, Move: noMoves}) || w.made["n"] != 1 || l.attempts["bad"].retryAt.IsZero() {
		t.Errorf("written %v, the other %+v; want n once, and bad to be written again", w.made, l.attempts["bad"])
	}
}

// writer plans writes and counts how often each is performed.
type writer struct {
	mu   sync.Mutex
	made map[types.UID]int
	err  error
}

func (w *writer) write(uid, version string) Write {
	return Write{Kind: NodeMark, UID: types.UID(uid), Version: version, Apply: func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made[types.UID(uid)]++
		return w.err
	}}
}

// cost returns a write of a deletion cost.
func (w *writer) cost(uid string) Write {
	cost := w.write(uid, "1")
	cost.Kind = DeletionCost
	return cost
}

// Every write is performed once for each version of its object. A failed write is retried later, or
// at once for another version.
func TestWrites(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", nil)
	type step struct {
		version string // planned; "" for no write
		err     error
		after   time.Duration
		want    int // performed so far
	}
	for name, steps := range map[string][]step{
		"in the caches late": {{version: "1", want: 1}, {version: "1", after: time.Hour, want: 1}, {version: "", want: 1}},
		"without effect":     {{version: "1", want: 1}, {version: "2", want: 2}, {version: "2", want: 2}},
		"failed": {
			{version: "1", err: errors.New("unavailable"), want: 1}, {version: "1", want: 1}, {version: "1", after: retryDelay, want: 2},
		},
		"outdated":                       {{version: "1", err: conflict, want: 1}, {version: "1", want: 1}, {version: "2", want: 2}},
		"outdated, and remains":          {{version: "1", err: conflict, want: 1}, {version: "1", after: retryDelay, want: 2}},
		"wanted again":                   {{version: "1", want: 1}, {version: "", want: 1}, {version: "1", want: 2}},
		"failed, then no longer planned": {{version: "1", err: errors.New("unavailable"), want: 1}, {version: "", want: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &writer{made: map[types.UID]int{}}
				l := New(nil, nil, false, 1)
				for i, s := range steps {
					time.Sleep(s.after)
					w.err = s.err
					p := Plan{Move: noMoves}
					if s.version != "" {
						p.Writes = []Write{w.write("n", s.version)}
					}
					l.act(t.Context(), p)
					if got := w.made["n"]; got != s.want {
						t.Errorf("step %d: written %d times, want %d", i, got, s.want)
					}
				}
				if len(l.attempts) > 1 {
					t.Errorf("remembers %v", l.attempts)
				}
			})
		})
	}
}

// A write of any kind may fail permanently, for example because of a quota or a policy. It is
// retried less and less often, and at once if its object changes.
func TestFailingWrite(t *testing.T) {
	for kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := &writer{made: map[types.UID]int{}, err: errors.New("exceeded quota")}
			l := New(nil, nil, false, 1)
			try := func(version string) int {
				b := w.write("b", version)
				b.Kind = kind
				l.act(t.Context(), Plan{Writes: []Write{b}, Move: noMoves})
				return w.made["b"]
			}
			for range int(time.Hour / time.Second) {
				try("1")
				time.Sleep(time.Second)
			}
			// After 1, 2, 4, … 64 s, and then every 2 min.
			if got := try("1"); got != 36 {
				t.Errorf("%s: tried %d times in an hour, want 36", kind, got)
			}
			if got := try("2"); got != 37 {
				t.Errorf("%s: tried %d times in all after the object changed, want 37", kind, got)
			}
		})
	}
}

// A budget that was created, and deleted before the caches contained it, is created again although
// the version of its Deployment has not changed.
func TestBudgetDeletedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writer{made: map[types.UID]int{}}
		l := New(nil, nil, false, 1)
		b := w.write("b", "1")
		b.Kind = Budget
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {budgetSyncTimeout - 1, 1}, {1, 2}} {
			time.Sleep(step.after)
			if l.act(t.Context(), Plan{Writes: []Write{b}, Move: noMoves}); w.made["b"] != step.want {
				t.Errorf("%s later: made %d times, want %d", step.after, w.made["b"], step.want)
			}
		}
	})
}

// The budgets of a large cluster do not delay a round.
func TestBudgetsAtOnce(t *testing.T) {
	w := &writer{made: map[types.UID]int{}}
	p, most := Plan{Move: noMoves}, kinds[Budget].maxPerRound
	for i := range 2*most + 1 {
		b := w.write(fmt.Sprintf("budget-%d", i), "1")
		b.Kind = Budget
		p.Writes = append(p.Writes, b)
	}
	l := New(nil, nil, false, 5)
	for round, want := range []int{most, 2 * most, 2*most + 1} {
		if moving := l.act(t.Context(), p); !moving || len(w.made) != want {
			t.Errorf("round %d: %d written, moving %t; want %d and true, so that the next round follows soon", round, len(w.made), moving, want)
		}
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	w := &writer{made: map[types.UID]int{}}
	l := New(nil, nil, true, 1)
	moved := 0
	l.act(t.Context(), Plan{
		Writes: []Write{w.write("n", "1"), w.cost("p")}, Move: func(context.Context) { moved++ },
	})
	if len(w.made) != 0 || moved != 1 {
		t.Errorf("written: %v, moves logged %d times; want nothing and 1", w.made, moved)
	}
}

// The first rounds plan many deletion costs, and write only some.
func TestCostsWait(t *testing.T) {
	w := &writer{made: map[types.UID]int{}}
	p, most := Plan{Move: noMoves}, kinds[DeletionCost].maxPerRound
	for i := range 3 * most {
		p.Writes = append(p.Writes, w.write(fmt.Sprintf("node-%d", i), "1"), w.cost(fmt.Sprintf("pod-%d", i)))
	}
	l := New(nil, nil, false, 5)
	for round := range 4 {
		l.act(t.Context(), p)
		if want := 3*most + min(round+1, 3)*most; len(w.made) != want {
			t.Errorf("round %d: %d written, want %d", round, len(w.made), want)
		}
	}
}

// If the API server does not answer, neither the moves nor the next round are delayed.
func TestHangingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under, most atomic.Int32
		hangs := Write{Kind: NodeMark, Version: "1", Apply: func(ctx context.Context) error {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		var p Plan
		for i := range 10 {
			hangs.UID = types.UID(fmt.Sprint(i))
			p.Writes = append(p.Writes, hangs)
		}
		var order []string
		p.Move = func(context.Context) { order = append(order, "move") }
		l := New(nil, nil, false, 3)
		began := time.Now()
		moving := l.act(t.Context(), p)
		order = append(order, "done")
		if took := time.Since(began); took != writeTimeout || !moving || !slices.Equal(order, []string{"move", "done"}) {
			t.Errorf("took %s, moving %t, %v; want %s, true, move before done", took, moving, order, writeTimeout)
		}
		if most.Load() != 3 {
			t.Errorf("%d writes at a time, want 3", most.Load())
		}
		// Writes that did not start count as never planned.
		if len(l.attempts) > 4 {
			t.Errorf("%d writes count as made or failed, want the 3 that started, and one that started after the timeout", len(l.attempts))
		}
	})
}

// Hanging writes do not delay the round that must delete a pod by more than writeAtLeast.
func TestLastMomentDuringHangingWrites(t *testing.T) {
	for _, test := range []struct{ next, want time.Duration }{
		{time.Second, time.Second}, {100 * time.Millisecond, minWriteTimeout}, {time.Minute, writeTimeout + maxDelayMoving},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now().Add(settleTime)
			var got []time.Duration
			hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			l := New(func(now time.Time) (Plan, error) {
				if got = append(got, now.Sub(began)); len(got) == 2 {
					cancel()
				}
				return Plan{Move: noMoves, Moving: true, Next: began.Add(test.next), Writes: []Write{{Kind: NodeMark, UID: "n", Apply: hangs}}}, nil
			}, synced(), false, 1)
			if err := l.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if got[1] != test.want {
				t.Errorf("with a last moment after %s the next round begins after %s, want %s", test.next, got[1], test.want)
			}
		})
	}
}
