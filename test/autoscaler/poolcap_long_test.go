//go:build long

package autoscaler

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// poolCapFallback is the value of fallbackAfter in this file: a replica that only maxPerPool
// keeps off spot then may exceed the cap.
const poolCapFallback = 20 * time.Second

// TestLongPoolCap: the only spot pool has room but already runs as many replicas as maxPerPool
// allows, and overflow may not use on-demand. Karpenter does not see the cap and launches
// nothing. An event reports this. After fallbackAfter, the replica runs on spot above the cap.
func TestLongPoolCap(t *testing.T) {
	s := startCapped(t, "Never")
	s.eventually(soon, s.hasSplit("web", split{OnDemand: 1, Spot: 1, Waiting: 1}))
	s.eventually(soon, s.hasEvent("web-", "HiddenFromAutoscaler", "maxPerPool"))
	s.eventually(poolCapFallback+soon, s.isAvailableWithSplit("web", split{OnDemand: 1, Spot: 2}))
	s.must(s.claimed(map[string]int{lab.Spot: 1, lab.OnDemand: 1})())
	var waited time.Duration
	for _, pod := range s.seen.podsOf("web") {
		waited = max(waited, pod.Bound.Sub(pod.Created))
	}
	t.Logf("the last replica waited for %s", waited.Round(100*time.Millisecond))
	if waited < poolCapFallback {
		t.Errorf("the last replica waited for %s, want at least %s: only the cap excludes the node", waited, poolCapFallback)
	}
	s.eventually(soon, s.hasEvent("web-", "FellBackToSpot", ""))
}

// TestLongPoolCapOverflows: like TestLongPoolCap, but overflow may use on-demand. The replica
// runs there at once and stays. The controller does not move it to spot, because Karpenter would
// not launch a node for it.
func TestLongPoolCapOverflows(t *testing.T) {
	s := startCapped(t, "Allow")
	capped := s.isAvailableWithSplit("web", split{OnDemand: 2, Spot: 1})
	s.eventually(soon, capped)
	s.eventually(soon, s.hasEvent("web-", "HiddenFromAutoscaler", "maxPerPool"))
	s.requireThroughout(poolCapFallback+soon, capped)
	s.must(s.claimed(map[string]int{lab.Spot: 1, lab.OnDemand: 1})())
}

// startCapped deploys three replicas with a floor of one, and one spot node with room for two. A
// pool may run one.
func startCapped(t *testing.T, overflow string) *scenario {
	t.Helper()
	s := start(t, setup{
		mode: true, safety: settings{"fallbackAfter": poolCapFallback.String()},
		karpenter: lab.KarpenterOptions{InstanceTypes: []string{"c-4x-amd64-linux"}},
	})
	s.deploy("filler", 1, "2500m", "64Mi", floor("0"))
	s.eventually(soon, s.isAvailableWithSplit("filler", split{Spot: 1}))
	s.deploy("web", 3, "500m", "64Mi", func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/max-per-pool"] = "1"
		d.Annotations["spot-aware-scheduler.io/overflow"] = overflow
	})
	return s
}
