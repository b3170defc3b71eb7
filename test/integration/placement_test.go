package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// soon is the longest time that an immediate reaction may take on a loaded machine.
const soon = 20 * time.Second

// manyPods is the longest time that the placement of a thousand pods may take on a loaded machine.
// The auditor detects pods that lose a wake-up much sooner.
const manyPods = 5 * time.Minute

func TestPlacementSingletonsOnOnDemand(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(5, 20), live.Spot(5, 20)))
	for i := range 50 {
		s.Deploy(fmt.Sprintf("single-%d", i), 1)
	}
	for i := range 50 {
		s.Eventually(soon, s.HasSplit(fmt.Sprintf("single-%d", i), split{OnDemand: 1}))
	}
}

func TestPlacementFloorThenSpot(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(3, 10), live.Spot(3, 10)))
	s.Deploy("three", 3)
	s.Deploy("ten", 10, live.Annotated(minOnDemand, "30%"))
	s.Eventually(soon, s.HasSplit("three", split{OnDemand: 1, Spot: 2}))
	s.Eventually(soon, s.HasSplit("ten", split{OnDemand: 3, Spot: 7}))
}
