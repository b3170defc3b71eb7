package safety_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// The configuration names the causes that limits bound.
func TestLimitedReasons(t *testing.T) {
	var want []string
	for cause, rule := range safety.Rules {
		if rule.Limited {
			want = append(want, string(cause))
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, controller.LimitedReasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func heal(n int) safety.Removal {
	return safety.Removal{
		ID: fmt.Sprint("heal-", n), Cause: safety.Heal, Namespace: "shop", Pod: fmt.Sprint("pod-", n), Workload: "Deployment/web", Starts: true,
	}
}

// perform sends moves of a process until one is refused, and returns how many were performed.
func (p *process) perform(t *testing.T) (performed int) {
	t.Helper()
	for {
		err := p.request("evict", heal(len(p.moves)), works)
		var limit *safety.LimitError
		switch {
		case err == nil:
			performed++
		case errors.As(err, &limit):
			return performed
		default:
			t.Fatal(err)
		}
	}
}

func newServer() *server { return &server{removed: map[string]bool{}} }

var threePerHour = controller.Limits{MovesPerHour: 3, MovesPerHourPerNamespace: 9, MovesPerHourPerWorkload: 9}

// TestNextLeader: what a new leader may still start after three of three moves.
func TestNextLeader(t *testing.T) {
	for name, test := range map[string]struct {
		ahead time.Duration // the clock of the new leader
		after time.Duration
		// tamper changes the ledger, before the first leader ends if it is alive.
		tamper string
		alive  bool
		want   int
	}{
		"at once":                                 {},
		"after an hour":                           {after: time.Hour},
		"when the moves expire":                   {after: 62 * time.Minute, want: 3},
		"clock behind by a day":                   {ahead: -24 * time.Hour},
		"clock ahead by a day (exception)":        {ahead: 24 * time.Hour, want: 3},
		"ledger deleted (exception)":              {tamper: "delete", want: 3},
		"ledger garbled (exception)":              {tamper: "garble", want: 3},
		"ledger truncated (exception)":            {tamper: "truncate", want: 2},
		"more lines":                              {tamper: "add"},
		"ledger deleted, and the leader writes":   {tamper: "delete", alive: true},
		"ledger garbled, and the leader writes":   {tamper: "garble", alive: true},
		"ledger truncated, and the leader writes": {tamper: "truncate", alive: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				first := s.start(t, threePerHour, 0)
				if n := first.perform(t); n != 3 {
					t.Fatalf("%d moves, want 3", n)
				}
				if test.tamper != "" {
					s.tamper(tampers[test.tamper])
				}
				if test.alive {
					unlimited := heal(10)
					unlimited.Cause = safety.Reclaim
					if err := first.request("evict", unlimited, works); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute)
				}
				time.Sleep(test.after)
				next := s.start(t, threePerHour, test.ahead)
				if n := next.perform(t); n != test.want {
					t.Errorf("%d more moves, want %d; ledger:\n%s", n, test.want, s.ledger.Data["moves"])
				}
			})
		})
	}
}

// TestClockStepOfALeader: a step of the wall clock changes nothing for the leader.
func TestClockStepOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newServer().start(t, threePerHour, 0)
		p.perform(t)
		for _, step := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			p.offset.Store(int64(step))
			if n := p.perform(t); n != 0 {
				t.Errorf("after a step of %s: %d more moves, want 0", step, n)
			}
		}
		time.Sleep(time.Hour + time.Minute)
		if n := p.perform(t); n != 3 {
			t.Errorf("in the next window: %d moves, want 3", n)
		}
	})
}

// TestWithoutLedger: if the ledger cannot be written, limited moves wait and others continue.
func TestWithoutLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.faults = slices.Repeat([]fault{refused}, 1000)
		p := s.start(t, threePerHour, 0)
		if err := p.request("evict", heal(0), works); err == nil {
			t.Error("a limited move started without a ledger")
		}
		for cause, rule := range safety.Rules {
			if r := heal(0); !rule.Limited {
				r.Cause = cause
				if err := p.request("delete", r, works); err != nil {
					t.Errorf("%s: %v", cause, err)
				}
			}
			if completed := heal(0); rule.Limited { // of a pod that was released before
				completed.Cause, completed.Starts = cause, false
				if err := p.request("evict", completed, works); err != nil {
					t.Errorf("%s: %v", cause, err)
				}
			}
		}
		time.Sleep(3 * time.Minute)
	})
}

// TestRefusedRequests: a move that the API server has refused does not count. One whose answer is
// lost does.
func TestRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newServer().start(t, threePerHour, 0)
		for n := range 5 {
			if err := p.request("evict", heal(n), refused); err == nil {
				t.Error("performed")
			}
		}
		_ = p.request("evict", heal(5), lostBefore)
		if n := p.perform(t); n != 2 {
			t.Errorf("%d moves, want 2", n)
		}
		time.Sleep(3 * time.Minute)
		if ids := p.ids(); len(ids) != 3 || !ids["heal-5"] {
			t.Errorf("the ledger has %v, want three moves with heal-5", slices.Sorted(maps.Keys(ids)))
		}
	})
}

// TestLedgerWrites: at rest nothing is written. Unlimited moves cause a write a minute. Limited
// moves cause one a second at most, and no more than moves.
func TestLedgerWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := s.start(t, controller.Limits{MovesPerHour: 200, MovesPerHourPerNamespace: 200, MovesPerHourPerWorkload: 200}, 0)
		for _, hour := range []struct {
			cause safety.Cause
			moves int
			most  int
		}{
			{cause: "rest"},
			{safety.Deadline, 7200, 61},
			{safety.Heal, 7200, 200 + 60}, // 200 moves start
		} {
			before := len(s.writes)
			for range hour.moves {
				r := safety.Removal{ID: safety.NewID(), Cause: hour.cause, Namespace: "shop", Pod: "p", Starts: true}
				go func() { _ = p.request("evict", r, works) }()
				time.Sleep(time.Hour / time.Duration(hour.moves))
			}
			if hour.moves == 0 {
				time.Sleep(time.Hour)
			}
			if writes := len(s.writes) - before; writes > hour.most {
				t.Errorf("%s: %d writes an hour, want at most %d", hour.cause, writes, hour.most)
			}
		}
		time.Sleep(3 * time.Minute)
	})
}

// TestLedgerSize: with the largest limit and the longest names the ledger fits into a ConfigMap.
// Moves at the same time are written together.
func TestLedgerSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := s.start(t, controller.Limits{MovesPerHour: 2000, MovesPerHourPerNamespace: 2000, MovesPerHourPerWorkload: 2000}, 0)
		for n := range 2100 {
			r := heal(n)
			r.ID, r.Namespace, r.Workload = safety.NewID(), strings.Repeat("n", 63), fmt.Sprint(n, strings.Repeat("\n", 300))
			r.Cause = safety.ReturnToSpot
			go func() { _ = p.request("evict", r, works) }()
		}
		time.Sleep(3 * time.Minute)
		if len(s.moves) != 2000 || len(s.ids()) != 2000 || len(s.writes) > 3 {
			t.Errorf("%d moves, %d in the ledger of %d bytes, and %d writes; want 2000 moves and few writes",
				len(s.moves), len(s.ids()), len(s.ledger.Data["moves"]), len(s.writes))
		}
	})
}

// switches pause a cause.
type switches safety.Cause

func (s switches) Paused(c safety.Cause) (string, bool) { return "by me", c == safety.Cause(s) }
func (s switches) Breaker() *bool                       { return nil }

// TestEnforce: the transport refuses paused causes, and removals without a cause.
func TestEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := s.start(t, threePerHour, 0)
		p.gate = safety.NewGate(safety.Options{Limits: threePerHour, Clock: p, Switches: switches(safety.Drain)})
		config := &rest.Config{Transport: p, QPS: -1}
		config.Wrap(p.gate.Enforce)
		var err error
		if p.client, err = kubernetes.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
		paused, unknown := heal(0), heal(0)
		paused.Cause, unknown.Cause = safety.Drain, "?"
		var pause *safety.PausedError
		if err := p.request("patch", paused, works); !errors.As(err, &pause) {
			t.Errorf("%v, want a pause", err)
		}
		pods := p.client.CoreV1().Pods("shop")
		for name, err := range map[string]error{
			"unknown cause": p.request("evict", unknown, works),
			"delete":        pods.Delete(t.Context(), "p", metav1.DeleteOptions{}),
			"delete all":    pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		} {
			if err == nil || !strings.Contains(err.Error(), "bug: ") {
				t.Errorf("%s: %v, want a bug", name, err)
			}
		}
		if len(s.moves) > 0 {
			t.Errorf("sent %v", s.moves)
		}
		if err := p.request("delete", heal(0), works); err != nil {
			t.Error(err)
		}
	})
}

// TestSchedules: within a period moves that save cost are refused, and others are not.
func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins on Saturday, 1 January 2000, at 0:00
		limits := threePerHour
		limits.Schedules = []controller.Schedule{{Schedule: "30 0 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
		p := newServer().start(t, limits, 0)
		returns := heal(0)
		returns.Cause = safety.ReturnToSpot
		time.Sleep(30 * time.Minute)
		var limit *safety.LimitError
		if err := p.gate.Check(returns); !errors.As(err, &limit) || !limit.Until.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("%v, want a refusal for an hour", err)
		}
		if err := p.gate.Check(heal(0)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if err := p.gate.Check(returns); err != nil {
			t.Errorf("after the period: %v", err)
		}
	})
}
