package integration

import (
	"fmt"
	"slices"
	"testing"
)

// TestPlacementScale changes the replicas and the floor of a live workload. Bound pods stay, and
// new pods follow the new values.
func TestPlacementScale(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 10), spotNodes(3, 10)))
	s.deploy("app", 3)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, spot: 2}))

	s.scale("app", 10)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, spot: 9}))

	// The scheduler does not choose which pods are deleted: they may include the one on on-demand.
	s.scale("app", 4)
	s.eventually(soon, func() error {
		at, err := s.splitOf("app")
		if err == nil && (at.waiting != 0 || at.onDemand+at.spot != 4) {
			err = fmt.Errorf("%+v, want 4 replicas", at)
		}
		return err
	})

	s.patchDeployment("app", annotation(minOnDemand, "3"))
	s.scale("app", 8)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 3, spot: 5}))

	s.patchDeployment("app", annotation(minOnDemand, "50%"))
	s.scale("app", 12)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 6, spot: 6}))

	s.patchDeployment("app", annotation(minOnDemand, "0"))
	s.scale("app", 16)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 6, spot: 10}))

	// Without the annotation the default floor of 1 applies again, and it is met.
	s.patchDeployment("app", `{"metadata":{"annotations":{"`+minOnDemand+`":null}}}`)
	s.scale("app", 20)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 6, spot: 14}))
}
