package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Thousands of writes of one kind that hang, for example because of a slow webhook, do not delay
// the first write of any other kind beyond the first round.
func TestHangingWritesDelayNoOtherKind(t *testing.T) {
	for _, concurrency := range []int{1, 50} {
		for hanging := range kinds {
			synctest.Test(t, func(t *testing.T) {
				p := Plan{Move: noMoves}
				for i := range 5000 {
					p.Writes = append(p.Writes, Write{Kind: hanging, UID: types.UID(fmt.Sprint(i)), Version: "1",
						Apply: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
				}
				made := make(chan WriteKind, 2*len(kinds))
				for kind := range kinds {
					if kind != hanging {
						p.Writes = append(p.Writes, Write{Kind: kind, UID: types.UID(kind), Version: "1", Apply: func(context.Context) error { made <- kind; return nil }})
					}
				}
				New(nil, nil, false, concurrency).act(t.Context(), p)
				if len(made) != len(kinds)-1 {
					t.Errorf("concurrency %d, 5,000 hanging %s: %d writes of the other kinds in the first round, want %d", concurrency, hanging, len(made), len(kinds)-1)
				}
			})
		}
	}
}

// Anyone may request thousands of evictions. A client of 20 requests per second, which rejects
// requests that it could not send in time, writes a budget in the first seconds nevertheless, and
// all responses in the time that it needs for them.
func TestManyResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		tokens := make(chan struct{}, 20)
		var refill sync.WaitGroup
		defer refill.Wait()
		refill.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
				select {
				case tokens <- struct{}{}:
				default:
				}
			}
		})
		limited := func(ctx context.Context) error {
			select {
			case <-tokens:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		began := time.Now()
		var budget, all time.Duration
		done := make([]bool, n)
		l := New(func(time.Time) (Plan, error) {
			p := Plan{Move: noMoves, Moving: true}
			for i := range done {
				if !done[i] {
					p.Writes = append(p.Writes, Write{Kind: DeletionCost, UID: types.UID(fmt.Sprint(i)), Version: "1",
						Apply: func(ctx context.Context) error { err := limited(ctx); done[i] = err == nil; return err }})
				}
			}
			if len(p.Writes) == 0 {
				all = time.Since(began)
				cancel()
			}
			p.Writes = append(p.Writes, Write{Kind: Budget, UID: "b", Version: "1", Apply: func(ctx context.Context) error {
				err := limited(ctx)
				if err == nil && budget == 0 {
					budget = time.Since(began)
				}
				return err
			}})
			return p, nil
		}, synced(), false, 50)
		if err := l.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if budget == 0 || budget > 5*time.Second || all == 0 || all > 3*n*50*time.Millisecond {
			t.Errorf("budget after %s, all responses after %s; want at most 5 s and %s", budget, all, 3*n*50*time.Millisecond)
		}
	})
}

// Deletion costs that are always refused are not retried each second, and delay no other costs.
func TestRefusedCostsDelayNoOthers(t *testing.T) {
	for _, refused := range []int{9, 10, 100, 1000} {
		synctest.Test(t, func(t *testing.T) {
			var p Plan
			p.Move = noMoves
			failures, good := 0, 0
			for i := range refused {
				p.Writes = append(p.Writes, Write{Kind: DeletionCost, UID: types.UID(fmt.Sprint("aaa", i)), Version: "1",
					Apply: func(context.Context) error { failures++; return errors.New("annotations: Too long") }})
			}
			l := New(nil, nil, false, 1)
			act := func(rounds int) {
				for range rounds {
					l.act(t.Context(), p)
					time.Sleep(time.Second)
				}
			}
			act(3600)
			if most := 40 * refused; failures > most {
				t.Errorf("%d costs are refused: %d requests in an hour, want at most %d", refused, failures, most)
			}
			for i := range 20 {
				p.Writes = append(p.Writes, Write{Kind: DeletionCost, UID: types.UID(fmt.Sprint("zzz", i)), Version: "1",
					Apply: func(context.Context) error { good++; return nil }})
			}
			if act(2); good != 20 {
				t.Errorf("%d costs are refused: %d of 20 other costs are written in two rounds", refused, good)
			}
		})
	}
}

// Thousands of writes of one tenant do not delay the first writes of another, whether they succeed,
// are refused or hang, and although the tenant's objects have new versions in each round.
func TestTenantsTakeTurns(t *testing.T) {
	for _, concurrency := range []int{1, 50} {
		for outcome, apply := range map[string]func(context.Context) error{
			"succeed": func(context.Context) error { return nil },
			"fail":    func(context.Context) error { return errors.New("annotations: Too long") },
			"hang":    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		} {
			for kind := range kinds {
				synctest.Test(t, func(t *testing.T) {
					l := New(nil, nil, false, concurrency)
					var written sync.Map
					for round := range 4 {
						p := Plan{Move: noMoves}
						for i := range 4000 {
							p.Writes = append(p.Writes, Write{Kind: kind, UID: types.UID(fmt.Sprint(i)), Version: fmt.Sprint(round), Name: klog.KRef("a", fmt.Sprint(i)), Apply: apply})
						}
						for _, namespace := range []string{"b", "c"} {
							p.Writes = append(p.Writes, Write{Kind: kind, UID: types.UID(namespace), Version: "1", Name: klog.KRef(namespace, "x"),
								Apply: func(ctx context.Context) error {
									if ctx.Err() == nil {
										written.Store(namespace, true)
									}
									return ctx.Err()
								}})
						}
						l.act(t.Context(), p)
						time.Sleep(time.Second)
					}
					for _, namespace := range []string{"b", "c"} {
						if _, ok := written.Load(namespace); !ok {
							t.Errorf("concurrency %d, 4,000 %s of a tenant %s: no write of %s in four rounds", concurrency, kind, outcome, namespace)
						}
					}
					if l.act(t.Context(), Plan{Move: noMoves}); len(l.attempts)+len(l.lastTurn) > 0 {
						t.Errorf("%d attempts and %d turns are remembered without writes", len(l.attempts), len(l.lastTurn))
					}
				})
			}
		}
	}
}

// In each turn, writes of a lower rank are first.
func TestRankOfWrites(t *testing.T) {
	var planned []Write
	for _, name := range []string{"a2", "a1", "b3", "a0", "b1"} {
		planned = append(planned, Write{Kind: Budget, UID: types.UID(name), Name: klog.KRef(name[:1], name), Rank: int(name[1] - '0')})
	}
	var got []string
	for _, w := range New(nil, nil, false, 1).due(planned, Budget, time.Now())[:4] {
		got = append(got, w.Name.Name)
	}
	if want := []string{"a0", "b1", "a1", "b3"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// A refusal is reported once for each cause. A 403 that names no cause counts only if it lasts.
func TestRefusedWriteIsReported(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New(text))
	}
	webhook, policy := forbidden(`admission webhook "a" denied the request: 1`), forbidden(`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: 2`)
	rbac := forbidden(`User "c" cannot patch resource "nodes"`)
	for name, test := range map[string]struct {
		err  func(at time.Duration) error
		want []string // the time of each report
	}{
		"webhook": {func(time.Duration) error { return webhook }, []string{"0s"}},
		"another text of the same webhook": {func(at time.Duration) error {
			return forbidden(fmt.Sprintf(`admission webhook "a" denied the request: %s`, at))
		}, []string{"0s"}},
		"a webhook, then a policy": {func(at time.Duration) error {
			if at < 2*time.Second {
				return webhook
			}
			return policy
		}, []string{"0s", "3s"}},
		"a webhook, with failures between": {func(at time.Duration) error {
			if at == time.Second {
				return errors.New("unavailable")
			}
			return webhook
		}, []string{"0s"}},
		"failing webhook": {func(time.Duration) error {
			return apierrors.NewInternalError(errors.New(`failed calling webhook "a": EOF`))
		}, []string{"0s"}},
		"RBAC": {func(time.Duration) error { return rbac }, []string{"3s"}},
		"RBAC, at a start": {func(at time.Duration) error {
			if at < 2*time.Second {
				return rbac
			}
			return nil
		}, nil},
		"unavailable": {func(time.Duration) error { return errors.New("unavailable") }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := New(nil, nil, false, 1)
			var got []string
			for range 60 {
				l.act(t.Context(), Plan{Move: noMoves, Writes: []Write{{Kind: NodeMark, UID: "n", Version: "1",
					Apply:   func(context.Context) error { return test.err(time.Since(began)) },
					Refused: func(error) { got = append(got, time.Since(began).String()) }}}})
				time.Sleep(time.Second)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: reported at %v, want %v", name, got, test.want)
			}
		})
	}
}
