package extender

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// hasSplit returns a check that the app has this split.
func hasSplit(t *testing.T, namespace, app string, want live.Split) func() error {
	return func() error {
		splits, err := live.Splits(t.Context(), client, namespace)
		if err == nil && splits[app] != want {
			err = fmt.Errorf("%s: %+v, want %+v", app, splits[app], want)
		}
		return err
	}
}

// TestWholeNodes has kube-scheduler send whole nodes instead of names (nodeCacheCapable: false).
// The placement must be the same.
func TestWholeNodes(t *testing.T) {
	withNodes(t, slices.Concat(live.OnDemand(1, 5), live.Spot(3, 10))...)
	e := startExtender(t)
	awaitLeader(t, newClient(t, schedulerTLS(t)), e.Address, "od-1")
	auditor := audit.Watch(t, controlPlane.Config(), audit.Options{Policy: shippedPolicy(t)})
	startStock(t, e.Address, func(extender map[string]any) { extender["nodeCacheCapable"] = false })
	namespace := newNamespace(t)

	deploy(t, namespace, "floor-then-spot", 10, 3)
	must(t, live.Until(t.Context(), live.Soon, hasSplit(t, namespace, "floor-then-spot", live.Split{OnDemand: 3, Spot: 7})))
	// On-demand has room for two pods of this floor.
	deploy(t, namespace, "on-demand-full", 10, 3)
	must(t, live.Until(t.Context(), live.Soon, hasSplit(t, namespace, "on-demand-full", live.Split{OnDemand: 2, Spot: 7, Waiting: 1})))
	must(t, controlPlane.CreateNodes(t.Context(), live.Nodes("more", "on-demand", "m5.xlarge", 1, 1)...))
	must(t, live.Until(t.Context(), live.Soon, hasSplit(t, namespace, "on-demand-full", live.Split{OnDemand: 3, Spot: 7})))
	auditor.Require(t)
}
