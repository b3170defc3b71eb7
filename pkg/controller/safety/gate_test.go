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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
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
		Cause: safety.Heal, Pod: types.UID(fmt.Sprint("pod-", n)), Namespace: "shop", Workload: "Deployment/web", Starts: true,
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
		"more entries":                            {tamper: "add"},
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
					time.Sleep(30 * time.Minute)
					if err := first.request("evict", heal(0), works); err != nil { // the same move
						t.Fatal(err)
					}
				}
				time.Sleep(test.after)
				next := s.start(t, threePerHour, test.ahead)
				if n := next.perform(t); n != test.want {
					t.Errorf("%d more moves, want %d; ledger: %v", n, test.want, s.ledger.Data)
				}
			})
		})
	}
}

// TestRefusedStarts: a start that a new leader refuses because of earlier moves does not count.
func TestRefusedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ahead, then := range map[time.Duration]time.Duration{
			0: 32 * time.Minute, -24 * time.Hour: 62 * time.Minute, // moves of the future count as of now
		} {
			s := newServer()
			s.start(t, threePerHour, 0).perform(t)
			time.Sleep(30 * time.Minute)
			next := s.start(t, threePerHour, ahead)
			if err := next.request("evict", heal(10), works); err == nil {
				t.Error("a fourth move started")
			}
			time.Sleep(then)
			if n := next.perform(t); n != 3 {
				t.Errorf("clock ahead by %s: in the next window %d moves, want 3", ahead, n)
			}
		}
	})
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
	})
}

// TestAttempts: all attempts for a pod are one move. It counts from the last attempt, also if the
// API server has refused all.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newServer().start(t, threePerHour, 0)
		for range 5 {
			if err := p.request("evict", heal(10), refused); err == nil {
				t.Error("performed")
			}
			time.Sleep(10 * time.Minute)
		}
		_ = p.request("evict", heal(11), lostBefore)
		if n := p.perform(t); n != 1 {
			t.Errorf("%d moves, want 1", n)
		}
		time.Sleep(30 * time.Minute) // 80 minutes after the first attempt, 40 after the last
		if err := p.gate.Check(heal(12)); err == nil {
			t.Error("a fourth move may start")
		}
		if err := p.gate.Check(heal(10)); err != nil {
			t.Errorf("the next attempt: %v", err)
		}
		if pods := slices.Sorted(maps.Keys(p.ledger.Data)); !slices.Equal(pods, []string{"pod-0", "pod-10", "pod-11"}) {
			t.Errorf("the ledger has %v, want three moves with pod-10 and pod-11", pods)
		}
	})
}

// TestLedgerWrites: at rest and for unlimited moves nothing is written. Limited moves cause no
// more writes than moves.
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
			{safety.Deadline, 7200, 0},
			{safety.Heal, 7200, 200}, // 200 moves start
		} {
			before := len(s.writes)
			for n := range hour.moves {
				r := heal(n)
				r.Cause = hour.cause
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
			r.Pod, r.Namespace, r.Workload = uuid.NewUUID(), strings.Repeat("n", 63), fmt.Sprint(n, strings.Repeat("\n<", 300))
			r.Cause = safety.ReturnToSpot
			go func() { _ = p.request("evict", r, works) }()
		}
		time.Sleep(time.Minute)
		if len(s.moves) != 2000 || len(s.entries()) != 2000 || len(s.writes) > 3 {
			t.Errorf("%d moves, %d in the ledger, and %d writes; want 2000 moves and few writes", len(s.moves), len(s.entries()), len(s.writes))
		}
	})
}

// TestEnforce: the transport refuses paused causes, and removals without a cause.
func TestEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := s.start(t, threePerHour, 0)
		p.gate = safety.NewGate(safety.Options{Limits: threePerHour, Clock: p, Paused: clustertest.Paused(func(c safety.Cause) bool { return c == safety.Drain })})
		config := &rest.Config{Transport: p, QPS: -1}
		config.Wrap(p.gate.Enforce)
		var err error
		if p.client, err = kubernetes.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
		paused, unknown := heal(0), heal(0)
		paused.Cause, unknown.Cause = safety.Drain, "?"
		if err := p.request("patch", paused, works); err == nil || !strings.Contains(err.Error(), "paused: drain") {
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
