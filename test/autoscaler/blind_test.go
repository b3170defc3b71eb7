package autoscaler

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// TestBlindWithoutTheMode shows why the mode exists. Karpenter simulates the plugins of Kubernetes only, so that it sees neither why a
// singleton cannot run on spot that has room, nor why an on-demand node is needed.
func TestBlindWithoutTheMode(t *testing.T) {
	s := start(t, setup{})
	s.roomOnSpot()

	s.deploy("single", 1, "200m", "64Mi")
	s.stays(15*time.Second, s.claimed(map[string]int{lab.Spot: 1}))
	s.must(s.is("single", split{Waiting: 1})())

	// With an on-demand node that another workload had bought, the singleton runs, until Karpenter consolidates.
	s.deploy("buyer", 1, "200m", "64Mi", onlyOn(lab.OnDemand))
	s.eventually(soon, s.is("single", split{OnDemand: 1}))
	s.remove("buyer")
	s.consolidate(time.Second)
	s.eventually(time.Minute, s.is("single", split{Waiting: 1}))
	if evicted := s.seen.of("single")[0]; !evicted.Evicted || evicted.Capacity != lab.OnDemand {
		t.Errorf("the first pod is %+v, want it evicted from on-demand", evicted)
	}
	if got := s.consolidated(); got != 1 {
		t.Errorf("consolidation evicted %d pods, want 1", got)
	}
	s.eventually(soon, s.claimed(map[string]int{lab.Spot: 1}))
}

// roomOnSpot has Karpenter buy one spot node that keeps room for a small pod.
func (s *scenario) roomOnSpot() {
	s.Helper()
	s.deploy("filler", 1, "1500m", "256Mi", floor("0")) // the smallest node that takes it has 1900m
	s.eventually(soon, s.is("filler", split{Spot: 1}))
	s.must(s.claimed(map[string]int{lab.Spot: 1})())
}
