package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestPlacementManyDeployments(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(60, 10), live.Spot(70, 26)))
	onSpot := s.watchSpot()
	want, budgets := map[string]split{}, map[string]int{}
	began := time.Now()
	for i := range 200 {
		name, floor := fmt.Sprintf("many-%d", i), 1
		if i%2 == 0 {
			s.Deploy(name, 10)
		} else {
			floor = 3
			s.Deploy(name, 10, live.Annotated(minOnDemand, "30%"))
		}
		budgets[name] = 10 - floor
		want[name] = split{OnDemand: floor, Spot: 10 - floor}
	}
	s.Eventually(manyPods, s.haveSplits(want))
	s.Logf("2,000 pods placed after %s", time.Since(began).Round(time.Second))
	s.requireWithinBudgets(onSpot(), budgets)
}

// haveSplits returns a check that all apps have these splits.
func (s *scenario) haveSplits(want map[string]split) func() error {
	return func() error {
		got, err := s.Splits()
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("pods per capacity type (-want +got):\n%s", diff)
		}
		return nil
	}
}
