package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// A killed scheduler leaves bound and unbound pods, and passes no state to its successor. The
// successor must observe all pods on spot before it decides. With an empty cache it would grant
// every revision its whole budget again.
func TestSchedulerKilledDuringPlacement(t *testing.T) {
	// Most floors find no on-demand at first. Spot has room for every replica, so a scheduler that
	// miscounts the bound pods breaches a floor.
	allOnDemand := live.OnDemand(40, 15)
	s := start(t, slices.Concat(allOnDemand[:10], live.Spot(60, 30)), limitBindings)
	onSpot := s.watchSpot()
	want, budgets := map[string]split{}, map[string]int{}
	for i := range 40 {
		name := fmt.Sprintf("large-%d", i)
		s.Deploy(name, 50, live.Annotated(minOnDemand, "30%"))
		budgets[name] = 35
		want[name] = split{OnDemand: 15, Spot: 35}
	}
	s.Eventually(time.Minute, func() error {
		if bound, err := s.bound(); err != nil || bound < 600 {
			return fmt.Errorf("%d pods are bound, %v", bound, err)
		}
		return nil
	})
	s.Must(s.Scheduler.Kill())
	left, err := s.bound()
	s.Must(err)
	s.Logf("killed with %d of 2,000 pods bound", left)
	if left >= 1500 {
		s.Errorf("killed too late: %d pods were bound", left)
	}

	s.startScheduler()
	// The lease of the killed leader must expire first, which takes 15 s.
	s.Eventually(manyPods, func() error {
		if bound, err := s.bound(); err != nil || bound < 40*35+10*15 {
			return fmt.Errorf("%d pods are bound, %v", bound, err)
		}
		return nil
	})
	s.AddNodes(allOnDemand[10:]...)
	s.Eventually(manyPods, s.haveSplits(want))
	s.requireWithinBudgets(onSpot(), budgets)
}

// limitBindings edits a configuration to limit the scheduler to about 150 bindings per second. That
// is slow enough for a test that lags by seconds to act before the end. It is also fast enough that
// no pod waits for its turn as long as a lost pod would.
func limitBindings(config map[string]any) {
	config["clientConnection"] = map[string]any{"qps": 150, "burst": 50}
}

// bound returns the number of live pods that have a node.
func (s *scenario) bound() (int, error) {
	splits, err := s.Splits()
	n := 0
	for _, at := range splits {
		n += at.OnDemand + at.Spot
	}
	return n, err
}
