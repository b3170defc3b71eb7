package migration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// TestLimitReached: limits refuse a heal. The pod stays without a request, one event per hour names
// the limit, and the gauge shows the move. When the limit ends, the heal starts.
func TestLimitReached(t *testing.T) {
	w := newWorld(t)
	w.calm = true
	w.deployment("web", 1)
	w.pod("old", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	b := newBench(w, false)
	rounds := func(limited string, wantGauge float64) {
		t.Helper()
		for range 6 {
			s := b.snapshot()
			requested := moves(s, migration.Heal, time.Time{}, "old")
			requested[0].Limited = limited
			b.executor.Do(quiet, migration.Plan(s, &room{left: 10}, requested, settings, b.executor.Observe(s)))
			b.executor.Wait()
			b.pass(10 * time.Minute)
		}
		values, err := gather()
		if err != nil || values["moves_limited heal"] != wantGauge {
			t.Errorf("%v moves limited (%v), want %v", values["moves_limited heal"], err, wantGauge)
		}
	}
	rounds("limits.movesPerHour is 1", 1)
	b.want(t, nil, []string{"LimitReached Deployment"})
	if note := strings.Join(b.notes, ""); note != "Moves wait (heal): limits.movesPerHour is 1" {
		t.Errorf("note %q", note)
	}
	rounds("limits.movesPerHour is 1", 1)
	b.want(t, nil, []string{"LimitReached Deployment", "LimitReached Deployment"})
	rounds("", 0)
	b.want(t, []string{"patch old"},
		[]string{"LimitReached Deployment", "LimitReached Deployment", "ReleasedToMove Pod", "MovingPods Deployment"})
}
