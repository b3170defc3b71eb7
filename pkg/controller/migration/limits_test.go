package migration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// TestLimitReached: a limit refuses a heal. The pod stays without a request, one event per hour
// names the limit, and the gauge shows the move. In the next window the heal starts. A move with a
// deadline is never refused.
func TestLimitReached(t *testing.T) {
	w := newWorld(t)
	w.calm = true
	w.deployment("web", 1)
	w.pod("old", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	b := newBench(w, false)
	gate := safety.NewGate(safety.Options{
		Limits: controller.Limits{MovesPerHour: 1, MovesPerHourPerNamespace: 9, MovesPerHourPerWorkload: 9}, Clock: b.clock,
	})
	b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{Concurrency: 2, RequestTimeout: time.Second, Gate: gate})
	other := safety.Removal{Cause: safety.Assign, Pod: "other", Namespace: "mail", Workload: "Deployment/mail", Starts: true}
	if err := gate.Allow(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	limited := func() float64 {
		values, err := gather()
		if err != nil {
			t.Fatal(err)
		}
		return values["moves_limited heal"]
	}
	for _, planned := range []bool{false, true} { // with the limit in the plan, or reached since
		for range 3 {
			s := b.snapshot()
			requested := moves(s, migration.Heal, time.Time{}, "old")
			requested[0].Limited = planned
			b.executor.Do(quiet, migration.Plan(s, &room{left: 10}, requested, settings, b.executor.Observe(s)))
			b.executor.Wait()
			b.pass(20 * time.Minute / 6)
		}
	}
	if got := limited(); got != 1 {
		t.Errorf("%v moves limited, want 1", got)
	}
	b.want(t, nil, []string{"LimitReached Deployment"})
	if note := strings.Join(b.notes, ""); note != "Moves wait (heal): limits.movesPerHour is 1: the next move (heal) may start at "+
		start.Add(61*time.Minute).UTC().Format(time.RFC3339) {
		t.Errorf("note %q", note)
	}
	b.pass(42 * time.Minute)
	b.round(0, "old")
	b.want(t, []string{"patch old"}, []string{"LimitReached Deployment", "ReleasedToMove Pod", "MovingPods Deployment"})
	if got := limited(); got != 0 {
		t.Errorf("%v moves limited, want 0", got)
	}
}

// TestDeadlineIsNotLimited: limits of 0 refuse no move with a deadline.
func TestDeadlineIsNotLimited(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("old", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	b := newBench(w, false)
	b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{
		Concurrency: 2, RequestTimeout: time.Second, Gate: safety.NewGate(safety.Options{Clock: b.clock}),
	})
	b.round(2*time.Minute, "old")
	clustertest.Equal(t, "requests", []string{"patch old"}, b.log)
}
