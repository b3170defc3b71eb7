package integration

import (
	"fmt"
	"slices"
	"testing"
)

// TestScale changes the replicas and the floor of a live workload: what stands stays, and later pods follow.
func TestScale(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 10), spot(3, 10)))
	s.deploy("app", 3)
	s.eventually(soon, s.is("app", split{onDemand: 1, spot: 2}))

	s.scale("app", 10)
	s.eventually(soon, s.is("app", split{onDemand: 1, spot: 9}))

	// Which ones go is not up to the scheduler: the on-demand one may be among them.
	s.scale("app", 4)
	s.eventually(soon, func() error {
		at, err := s.where("app")
		if err == nil && (at.waiting != 0 || at.onDemand+at.spot != 4) {
			err = fmt.Errorf("%+v, want 4 replicas", at)
		}
		return err
	})

	s.patchDeployment("app", annotation(minOnDemand, "3"))
	s.scale("app", 8)
	s.eventually(soon, s.is("app", split{onDemand: 3, spot: 5}))

	s.patchDeployment("app", annotation(minOnDemand, "50%"))
	s.scale("app", 12)
	s.eventually(soon, s.is("app", split{onDemand: 6, spot: 6}))

	s.patchDeployment("app", annotation(minOnDemand, "0"))
	s.scale("app", 16)
	s.eventually(soon, s.is("app", split{onDemand: 6, spot: 10}))

	// Without the annotation the default holds again: a floor of 1, which stands.
	s.patchDeployment("app", `{"metadata":{"annotations":{"`+minOnDemand+`":null}}}`)
	s.scale("app", 20)
	s.eventually(soon, s.is("app", split{onDemand: 6, spot: 14}))
}
