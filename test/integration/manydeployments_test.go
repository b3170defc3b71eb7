package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPlacementManyDeployments(t *testing.T) {
	s := start(t, slices.Concat(onDemand(60, 10), spotNodes(70, 26)))
	onSpot := s.watchSpot()
	want, budgets := map[string]split{}, map[string]int{}
	began := time.Now()
	for i := range 200 {
		name, floor := fmt.Sprintf("many-%d", i), 1
		if i%2 == 0 {
			s.deploy(name, 10)
		} else {
			floor = 3
			s.deploy(name, 10, annotated(minOnDemand, "30%"))
		}
		budgets[name] = 10 - floor
		want[name] = split{onDemand: floor, spot: 10 - floor}
	}
	s.eventually(manyPods, s.haveSplits(want))
	s.Logf("2,000 pods placed after %s", time.Since(began).Round(time.Second))
	s.requireWithinBudgets(onSpot(), budgets)
}

// haveSplits returns a check that all apps have these splits.
func (s *scenario) haveSplits(want map[string]split) func() error {
	return func() error {
		got, err := s.splits()
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(split{})); diff != "" {
			return fmt.Errorf("pods per capacity type (-want +got):\n%s", diff)
		}
		return nil
	}
}
