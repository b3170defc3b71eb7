package integration

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestOverflowNever has replicas beyond the floor wait for spot, although on-demand has room for
// all replicas.
func TestOverflowNever(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 10), live.Spot(1, 1)), live.Settings{"overflow": "Never", "fallbackAfter": "never"}.EditSafety)
	s.fillNode("spot-1", 1)

	s.Deploy("app", 3)
	s.Eventually(soon, s.pendingReason("app", 2, "overflow Never: the floor of 1 of "+s.Namespace+"/app-"))
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Waiting: 2}))
	// The replicas wait for spot, not for on-demand.
	s.Eventually(soon, s.hasMetric(0, "spot_aware_scheduler_waiting_for_on_demand_pods", nil))

	// A pod that admits only on-demand may run there. A workload's annotation may allow overflow.
	s.Deploy("fixed", 3, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{lab.CapacityLabel: lab.OnDemand}
	})
	s.Deploy("allowed", 3, live.Annotated("spot-aware-scheduler.io/overflow", "Allow"))
	s.Eventually(soon, s.HasSplit("fixed", split{OnDemand: 3}))
	s.Eventually(soon, s.HasSplit("allowed", split{OnDemand: 3}))

	// The replica on on-demand is deleted. One of the waiting replicas or its replacement then runs
	// there.
	s.awaitIdleScheduler()
	pods, err := s.Pods("app")
	s.Must(err)
	i := slices.IndexFunc(pods, func(pod v1.Pod) bool { return pod.Spec.NodeName != "" })
	s.deletePod(pods[i].Name)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Waiting: 2}))

	// Spot is added, and the waiting replicas run there.
	s.awaitIdleScheduler()
	s.AddNodes(lab.NodeSpec{Name: "spot-2", Capacity: lab.Spot, InstanceType: "c5.xlarge", Zone: "zone-b", CPU: "10"})
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 1, Spot: 2}))
}
