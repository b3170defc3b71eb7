package autoscaler

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestWithoutAutoscalerMode shows the problem that the mode solves. Karpenter simulates only the
// plugins of Kubernetes. It cannot see that a singleton must not run on spot although spot has
// room, or that it needs an on-demand node.
func TestWithoutAutoscalerMode(t *testing.T) {
	s := start(t, setup{})
	s.launchSpotNode()

	s.deploy("single", 1, "200m", "64Mi")
	s.RequireThroughout(15*time.Second, s.claimed(map[string]int{lab.Spot: 1}))
	s.Must(s.isAvailableWithSplit("single", split{Waiting: 1})())

	// On an on-demand node that Karpenter launched for another workload, the singleton runs until
	// Karpenter consolidates.
	s.deploy("provisioner", 1, "200m", "64Mi", live.OnlyOn(lab.KarpenterCapacityLabel, lab.OnDemand))
	s.Eventually(soon, s.isAvailableWithSplit("single", split{OnDemand: 1}))
	s.remove("provisioner")
	s.consolidate(time.Second)
	s.Eventually(time.Minute, s.isAvailableWithSplit("single", split{Waiting: 1}))
	if evicted := s.Seen.Pods("single")[0]; !evicted.Evicted || evicted.Capacity != lab.OnDemand {
		t.Errorf("the first pod is %+v, want it evicted from on-demand", evicted)
	}
	if got := s.consolidated(); got != 1 {
		t.Errorf("consolidation evicted %d pods, want 1", got)
	}
	s.Eventually(soon, s.claimed(map[string]int{lab.Spot: 1}))
}

// launchSpotNode makes Karpenter launch one spot node, with room for a small pod in addition.
func (s *scenario) launchSpotNode() {
	s.Helper()
	s.deploy("filler", 1, "1500m", "256Mi", floor("0")) // the smallest node with room for it has 1900m
	s.Eventually(soon, s.isAvailableWithSplit("filler", split{Spot: 1}))
	s.Must(s.claimed(map[string]int{lab.Spot: 1})())
}
