//go:build long

package autoscaler

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// poolCapFallback is the value of fallbackAfter in this file: a replica that only maxPerPool
// keeps off spot then may exceed the cap.
const poolCapFallback = 20 * time.Second

// TestLongPoolCap: the only spot pool has room but already runs as many replicas as maxPerPool
// allows, and overflow may not use on-demand. Karpenter does not see the cap and launches
// nothing. An event reports this. After fallbackAfter, the replica runs on spot above the cap.
func TestLongPoolCap(t *testing.T) {
	s := startCapped(t, "Never")
	s.Eventually(soon, s.HasSplit("web", split{OnDemand: 1, Spot: 1, Waiting: 1}))
	s.Eventually(soon, s.HasEvent("web-", "HiddenFromAutoscaler", "maxPerPool"))
	s.Eventually(poolCapFallback+soon, s.isAvailableWithSplit("web", split{OnDemand: 1, Spot: 2}))
	s.Must(s.claimed(map[string]int{lab.Spot: 1, lab.OnDemand: 1})())
	var waited time.Duration
	for _, pod := range s.Seen.Pods("web") {
		waited = max(waited, pod.Bound.Sub(pod.Created))
	}
	t.Logf("the last replica waited for %s", waited.Round(100*time.Millisecond))
	if waited < poolCapFallback {
		t.Errorf("the last replica waited for %s, want at least %s: only the cap excludes the node", waited, poolCapFallback)
	}
	s.Eventually(soon, s.HasEvent("web-", "FellBackToSpot", ""))
}

// TestLongPoolCapOverflows: like TestLongPoolCap, but overflow may use on-demand. The replica
// runs there at once and stays. The controller does not move it to spot, because Karpenter would
// not launch a node for it.
func TestLongPoolCapOverflows(t *testing.T) {
	s := startCapped(t, "Allow")
	capped := s.isAvailableWithSplit("web", split{OnDemand: 2, Spot: 1})
	s.Eventually(soon, capped)
	s.Eventually(soon, s.HasEvent("web-", "HiddenFromAutoscaler", "maxPerPool"))
	s.RequireThroughout(poolCapFallback+soon, capped)
	s.Must(s.claimed(map[string]int{lab.Spot: 1, lab.OnDemand: 1})())
}

// startCapped deploys three replicas with a floor of one, and one spot node with room for two. A
// pool may run one.
func startCapped(t *testing.T, overflow string) *scenario {
	t.Helper()
	s := start(t, setup{
		mode: true, safety: live.Settings{"fallbackAfter": poolCapFallback.String()},
		karpenter: lab.KarpenterOptions{InstanceTypes: []string{"c-4x-amd64-linux"}},
	})
	s.deploy("filler", 1, "2500m", "64Mi", floor("0"))
	s.Eventually(soon, s.isAvailableWithSplit("filler", split{Spot: 1}))
	s.deploy("web", 3, "500m", "64Mi", func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/max-per-pool"] = "1"
		d.Annotations["spot-aware-scheduler.io/overflow"] = overflow
	})
	return s
}
