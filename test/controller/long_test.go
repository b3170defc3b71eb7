//go:build long

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// Tests that take minutes. make test-long runs them.

func TestLongMassReclaim(t *testing.T)                  { massReclaim(t, 300, 600) }
func TestLongMassReclaimWithRoomForFloors(t *testing.T) { massReclaimForFloors(t, 100) }
func TestLongControllerKilledDuringMoves(t *testing.T)  { controllerKilledDuringMoves(t, 50, 20) }
func TestLongRepeatedSpotLoss(t *testing.T)             { repeatedSpotLoss(t, 8) }
func TestLongOutage(t *testing.T) {
	outage(t, (*lab.Process).Pause, func(_ *scenario, p *lab.Process) error { return p.Resume() })
}

// repeatedSpotLoss deletes all spot nodes every 20 s and recreates them 20 s later.
func repeatedSpotLoss(t *testing.T, times int) {
	const calm = time.Minute
	s := start(t, append(live.OnDemand(2, 10), live.Spot(2, 10)...)...)
	apps := map[string]int{"four": 4, "two": 2, "single": 1}
	for app, n := range apps {
		s.Deploy(app, n)
	}
	for app, n := range apps {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: n - 1}))
		s.Seen.RequireReady(app, 1)
	}
	s.StartController(live.Settings{"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": calm.String()})
	began := time.Now()
	for range times {
		s.LoseNodes("spot-1", "spot-2")
		time.Sleep(20 * time.Second) // spot is missing
		s.AddNodes(live.Spot(2, 10)...)
		time.Sleep(20 * time.Second) // spot exists
	}
	for app := range apps {
		var moves []time.Time
		for _, record := range s.Seen.Pods(app) {
			// A pod that was deleted with its node was neither released nor evicted.
			if record.Evicted || !record.Released().IsZero() {
				moves = append(moves, cmp.Or(record.Released(), record.Left))
			}
		}
		slices.SortFunc(moves, time.Time.Compare)
		for i := 1; i < len(moves); i++ {
			if between := moves[i].Sub(moves[i-1]); between < calm {
				t.Errorf("%s: two rebalancing moves within %s", app, between.Round(time.Second))
			}
		}
		t.Logf("%s: %d rebalancing moves in %s", app, len(moves), time.Since(began).Round(time.Second))
	}
	s.Eventually(soon, func() error {
		if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
			return fmt.Errorf("below their floors: %v", deficits)
		}
		return nil
	})
}
