package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A scheduler that is killed leaves pods that are bound, pods that are not, and nobody to tell the next one which. The next one has
// to see all that stand on spot before it decides: with an empty cache every revision would get its whole budget once more.
func TestKilledWhilePlacing(t *testing.T) {
	// Most of the floors find no on-demand at first, so that spot takes whatever is forgotten to be there already.
	allOnDemand := onDemand(40, 15)
	s := start(t, slices.Concat(allOnDemand[:10], spot(60, 30)), unhurried)
	onSpot := s.watchSpot()
	want, budgets := map[string]split{}, map[string]int{}
	for i := range 40 {
		name := fmt.Sprintf("large-%d", i)
		s.deploy(name, 50, annotated(minOnDemand, "30%"))
		budgets[name] = 35
		want[name] = split{onDemand: 15, spot: 35}
	}
	s.eventually(time.Minute, func() error {
		if bound, err := s.bound(); err != nil || bound < 600 {
			return fmt.Errorf("%d pods are bound, %v", bound, err)
		}
		return nil
	})
	s.must(s.scheduler.Kill())
	left, err := s.bound()
	s.must(err)
	s.Logf("killed with %d of 2,000 pods bound", left)
	if left >= 1500 {
		s.Errorf("killed too late: %d pods were bound", left)
	}

	s.startScheduler()
	// The killed leader's lease has to run out first: 15 s.
	s.eventually(3*time.Minute, func() error {
		if bound, err := s.bound(); err != nil || bound < 40*35+10*15 {
			return fmt.Errorf("%d pods are bound, %v", bound, err)
		}
		return nil
	})
	s.addNodes(allOnDemand[10:]...)
	s.eventually(2*time.Minute, s.are(want))
	s.noBreach(onSpot(), budgets)
}

// unhurried is an edit of a configuration that has the scheduler bind no more than 150 pods a second: slow enough for a test that is held
// up for seconds to come in the middle of it, and fast enough for no pod to wait for its turn as long as one that was lost.
func unhurried(config map[string]any) {
	config["clientConnection"] = map[string]any{"qps": 150, "burst": 50}
}

// bound returns how many live pods have a node.
func (s *scenario) bound() (int, error) {
	splits, err := s.splits()
	n := 0
	for _, at := range splits {
		n += at.onDemand + at.spot
	}
	return n, err
}
