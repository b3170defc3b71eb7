package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestPlacementScale changes the replicas and the floor of a live workload. Bound pods stay, and
// new pods follow the new values.
func TestPlacementScale(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 10), live.Spot(3, 10)))
	s.Deploy("app", 3)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Spot: 2}))

	s.Scale("app", 10)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Spot: 9}))

	// The scheduler does not choose which pods are deleted: they may include the one on on-demand.
	s.Scale("app", 4)
	s.Eventually(soon, func() error {
		at, err := s.SplitOf("app")
		if err == nil && (at.Waiting != 0 || at.OnDemand+at.Spot != 4) {
			err = fmt.Errorf("%+v, want 4 replicas", at)
		}
		return err
	})

	s.PatchDeployment("app", annotation(minOnDemand, "3"))
	s.Scale("app", 8)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 3, Spot: 5}))

	s.PatchDeployment("app", annotation(minOnDemand, "50%"))
	s.Scale("app", 12)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 6, Spot: 6}))

	s.PatchDeployment("app", annotation(minOnDemand, "0"))
	s.Scale("app", 16)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 6, Spot: 10}))

	// Without the annotation the default floor of 1 applies again, and it is met.
	s.PatchDeployment("app", `{"metadata":{"annotations":{"`+minOnDemand+`":null}}}`)
	s.Scale("app", 20)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 6, Spot: 14}))
}
