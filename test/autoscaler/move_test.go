package autoscaler

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestHealLaunchesOnDemandNode: a floor is raised while no on-demand node exists. Its replicas
// surge to an on-demand node that Karpenter launches.
func TestHealLaunchesOnDemandNode(t *testing.T) {
	s := start(t, setup{mode: true})
	s.deploy("web", 3, "200m", "64Mi", floor("0"))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{Spot: 3}))
	s.setFloor("web", "2")
	s.Eventually(2*soon, s.isAvailableWithSplit("web", split{OnDemand: 2, Spot: 1}))
	s.Eventually(soon, s.Moved(2, 2, "surge", "heal"))
	s.requireNoGeneratedLabels()
}

// TestReturnToSpotLaunchesNode: all replicas run on on-demand because Karpenter could launch
// nothing else. When Karpenter can launch spot again, the surplus surges to a new spot node, and
// the floor stays on on-demand.
func TestReturnToSpotLaunchesNode(t *testing.T) {
	s := start(t, setup{
		mode: true, controller: live.Settings{"rebalance.returnToSpot": false},
		karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{{CapacityTypes: []string{lab.OnDemand}}}},
	})
	s.deploy("web", 3, "200m", "64Mi", floor("1"))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 3}))
	s.pools[0].CapacityTypes = nil
	s.Must(controlPlane.ApplyNodePool(s.Ctx, s.pools[0]))
	s.Must(s.Controller.Stop())
	s.setup.controller = nil
	s.startController()
	s.Eventually(2*soon, s.isAvailableWithSplit("web", split{OnDemand: 1, Spot: 2}))
	s.Eventually(soon, s.Moved(2, 2, "surge", "return-to-spot"))
	s.requireNoGeneratedLabels()
}

// setFloor changes the number of a Deployment's replicas that must run on on-demand.
func (s *scenario) setFloor(name, value string) {
	s.Helper()
	s.PatchDeployment(name, `{"metadata":{"annotations":{"`+minOnDemand+`":"`+value+`"}}}`)
}
