package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// soon is the longest time that an immediate reaction may take on a loaded machine.
const soon = 20 * time.Second

// manyPods is the longest time that the placement of a thousand pods may take on a loaded machine.
// The auditor detects pods that lose a wake-up much sooner.
const manyPods = 5 * time.Minute

func TestPlacementSingletonsOnOnDemand(t *testing.T) {
	s := start(t, slices.Concat(onDemand(5, 20), spotNodes(5, 20)))
	for i := range 50 {
		s.deploy(fmt.Sprintf("single-%d", i), 1)
	}
	for i := range 50 {
		s.eventually(soon, s.hasSplit(fmt.Sprintf("single-%d", i), split{onDemand: 1}))
	}
}

func TestPlacementFloorThenSpot(t *testing.T) {
	s := start(t, slices.Concat(onDemand(3, 10), spotNodes(3, 10)))
	s.deploy("three", 3)
	s.deploy("ten", 10, annotated(minOnDemand, "30%"))
	s.eventually(soon, s.hasSplit("three", split{onDemand: 1, spot: 2}))
	s.eventually(soon, s.hasSplit("ten", split{onDemand: 3, spot: 7}))
}
