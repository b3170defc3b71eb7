package rebalance_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Explain returns Planned for exactly the workloads that a new leader would move, and another cause
// for each other workload with a shortfall.
func TestExplainAgreesWithPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.draw(t, "Deployment", "StatefulSet", "Job")
		remembering := settings
		remembering.Rebalance.MaxMoves = rapid.Int32Range(1, 3).Draw(t, "maxMoves")
		remembering.Rebalance.Heal = rapid.Bool().Draw(t, "heal")
		remembering.Memory = &leader.Memory{}
		last := rebalance.NewPlanner(remembering)
		for range rapid.IntRange(0, 15).Draw(t, "minutes") {
			w.now = w.now.Add(time.Minute)
			w.schedule()
			s := w.snapshot()
			for _, m := range last.Plan(s, simulation.NewRoom(s)) {
				w.move(m.Pod.Name, rapid.Bool().Draw(t, "surge"))
			}
		}
		w.now = w.now.Add(time.Minute)
		s := w.snapshot()
		obstacles := rebalance.NewPlanner(remembering).Explain(s, simulation.NewRoom(s), s.Now)
		moved := map[workload.OwnerKey]bool{}
		for _, m := range rebalance.NewPlanner(remembering).Plan(s, simulation.NewRoom(s)) {
			moved[m.Pod.Workload.Key] = true
		}
		for _, work := range s.Workloads {
			status := work.FloorStatus()
			for reason, pods := range map[migration.Reason]int{migration.Heal: status.Healable, migration.ReturnToSpot: status.Surplus} {
				o, explained := obstacles[rebalance.Shortfall{Workload: work.Key, Reason: reason}]
				switch {
				case explained != (pods > 0):
					t.Fatalf("%s has %d pods to move for %s: %+v", work.Name, pods, reason, o)
				case explained && o.Cause == "":
					t.Fatalf("%s: no cause for %s", work.Name, reason)
				case explained && (o.Cause == rebalance.Planned) != moved[work.Key] && !(o.Cause == rebalance.SwitchedOff && moved[work.Key]):
					t.Fatalf("%s: %q for %s, but moved is %t", work.Name, o.Cause, reason, moved[work.Key])
				case !o.Until.IsZero() && !o.Until.After(s.Now):
					t.Fatalf("%s: %q until %s, which has passed at %s", work.Name, o.Cause, o.Until, s.Now)
				}
			}
		}
	})
}

// A later leader does not trust a young pool with a second replica in the same calm period.
func TestEarlyMoveIsPassedOn(t *testing.T) {
	w := newWorld("node od on-demand cpu=9", "node sp spot cpu=9", "deployment web 3 od od od min=1")
	w.node("sp").created = w.now.Add(-13 * time.Minute)
	remembering := settings
	remembering.Memory = &leader.Memory{}
	moves := w.plan(rebalance.NewPlanner(remembering))
	if len(moves) != 1 {
		t.Fatalf("%v, want one move", moves)
	}
	w.move("web-0", true)
	began := w.now
	w.now = w.now.Add(6 * time.Minute) // the replacement is not starting any more
	s := w.snapshot()
	want := rebalance.Obstacle{Cause: rebalance.OnePerPeriod, Until: began.Add(7 * time.Minute), Detail: "pool/zone"}
	obstacles := rebalance.NewPlanner(remembering).Explain(s, simulation.NewRoom(s), began)
	got := obstacles[rebalance.Shortfall{Workload: s.Workloads[0].Key, Reason: migration.ReturnToSpot}]
	if got.Cause != want.Cause || !got.Until.Equal(want.Until) || got.Detail != want.Detail {
		t.Errorf("%+v, want %+v", got, want)
	}
	if moves := w.plan(rebalance.NewPlanner(remembering)); len(moves) > 0 {
		t.Errorf("the next leader plans %v, want none", moves)
	}
}
