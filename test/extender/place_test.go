package extender

import (
	"slices"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestWholeNodes has kube-scheduler send whole nodes instead of names (nodeCacheCapable: false).
// The placement must be the same.
func TestWholeNodes(t *testing.T) {
	s := live.NewScenario(t, controlPlane, client, slices.Concat(live.OnDemand(1, 5), live.Spot(3, 10))...)
	e := startExtender(t)
	awaitLeader(t, newClient(t, schedulerTLS(t)), e.Address, "od-1")
	s.Audit(nil, audit.Options{})
	startStock(t, e.Address, func(extender map[string]any) { extender["nodeCacheCapable"] = false })

	deploy(s, "floor-then-spot", 10, 3)
	s.Eventually(live.Soon, s.HasSplit("floor-then-spot", live.Split{OnDemand: 3, Spot: 7}))
	// On-demand has room for two pods of this floor.
	deploy(s, "on-demand-full", 10, 3)
	s.Eventually(live.Soon, s.HasSplit("on-demand-full", live.Split{OnDemand: 2, Spot: 7, Waiting: 1}))
	live.Must(t, controlPlane.CreateNodes(t.Context(), live.Nodes("more", "on-demand", "m5.xlarge", 1, 1)...))
	s.Eventually(live.Soon, s.HasSplit("on-demand-full", live.Split{OnDemand: 3, Spot: 7}))
	s.Auditor.Require(t)
}
