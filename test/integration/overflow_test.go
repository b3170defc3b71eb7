package integration

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// TestOverflowNever has replicas beyond the floor wait for spot, although on-demand has room for
// all replicas.
func TestOverflowNever(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 10), spotNodes(1, 1)), args(map[string]any{"overflow": "Never", "fallbackAfter": "never"}))
	s.fillNode("spot-1", 1)

	s.deploy("app", 3)
	s.eventually(soon, s.pendingReason("app", 2, "overflow Never: the floor of 1 of "+s.namespace+"/app-"))
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, waiting: 2}))
	// The replicas wait for spot, not for on-demand.
	s.eventually(soon, s.hasMetric(0, "spot_aware_scheduler_waiting_for_on_demand_pods", nil))

	// A pod that admits only on-demand may run there. A workload's annotation may allow overflow.
	s.deploy("fixed", 3, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{lab.CapacityLabel: lab.OnDemand}
	})
	s.deploy("allowed", 3, annotated("spot-aware-scheduler.io/overflow", "Allow"))
	s.eventually(soon, s.hasSplit("fixed", split{onDemand: 3}))
	s.eventually(soon, s.hasSplit("allowed", split{onDemand: 3}))

	// The replica on on-demand is deleted. One of the waiting replicas or its replacement then runs
	// there.
	s.awaitIdleScheduler()
	pods, err := s.pods("app")
	s.must(err)
	i := slices.IndexFunc(pods, func(pod v1.Pod) bool { return pod.Spec.NodeName != "" })
	s.deletePod(pods[i].Name)
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, waiting: 2}))

	// Spot is added, and the waiting replicas run there.
	s.awaitIdleScheduler()
	s.addNodes(lab.NodeSpec{Name: "spot-2", Capacity: lab.Spot, InstanceType: "c5.xlarge", Zone: "zone-b", CPU: "10"})
	s.eventually(soon, s.hasSplit("app", split{onDemand: 1, spot: 2}))
}
