package autoscaler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// A singleton launches an on-demand node: spot has room, and no on-demand node exists. Karpenter
// launches one, although Kubernetes' own plugins would allow the singleton on spot.
func TestSingletonLaunchesOnDemandNode(t *testing.T)     { singletonLaunches(t, setup{mode: true}) }
func TestKeptSingletonLaunchesOnDemandNode(t *testing.T) { singletonLaunches(t, setup{keeps: true}) }

func singletonLaunches(t *testing.T, with setup) {
	t.Helper()
	s := start(t, with)
	s.launchSpotNode()

	began := time.Now()
	s.deploy("single", 1, "200m", "64Mi")
	s.Eventually(soon, s.isAvailableWithSplit("single", split{OnDemand: 1}))
	// Karpenter removes a NoExecute taint from the node when it registers it. If the taint eviction
	// controller of Kubernetes sees that later than the scheduler, it deletes the new pod.
	pods := slices.DeleteFunc(s.Seen.Pods("single"), func(pod live.PodRecord) bool { return pod.TaintEvicted })
	if len(pods) != 1 {
		t.Fatalf("the singleton had %d pods, want 1: %+v", len(pods), pods)
	}
	took := pods[0].Ready.Sub(began)
	t.Logf("ready %s after its creation", took.Round(time.Millisecond))
	if took >= 10*time.Second {
		t.Errorf("ready after %s, want less than 10 s", took)
	}
	if !strings.HasPrefix(pods[0].Assigned, lab.OnDemand+":") {
		t.Errorf("assigned is %q, want prefix %q", pods[0].Assigned, lab.OnDemand+":")
	}
	s.Must(s.claimed(map[string]int{lab.Spot: 1, lab.OnDemand: 1})())
	s.requireNoGeneratedLabels()
}
