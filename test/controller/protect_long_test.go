//go:build long

package controller

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongProtectWithoutController: the scheduler deletes the budgets of a controller that was killed, and the drain that waits for them
// ends. A controller that runs again makes them again. (Row 6 of drains.)
func TestLongProtectWithoutController(t *testing.T) {
	s := start(t, live.OnDemand(2, 5)...)
	s.deploy("one", 1, protected)
	s.eventually(soon, s.is("one", split{OnDemand: 1}))
	s.control(drains())
	s.eventually(soon, s.guards("one", "0"))
	s.must(s.controller.Kill())

	const most = 5*time.Minute + 30*time.Second
	took, err := s.drain(s.podOf("one").Spec.NodeName, most)
	s.must(err)
	t.Logf("the drain took %s", took.Round(time.Millisecond))
	if took < 4*time.Minute {
		t.Errorf("the drain took %s: a controller that is replaced within 5 min is to find its budgets", took)
	}
	s.must(s.unguarded("one")())
	s.eventually(soon, s.is("one", split{OnDemand: 1}))

	s.control(drains())
	s.eventually(time.Minute, s.guards("one", "0")) // the lease of the one that was killed ends first
}
