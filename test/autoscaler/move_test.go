package autoscaler

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// TestHealLaunchesOnDemandNode: a floor is raised while no on-demand node exists. Its replicas
// surge to an on-demand node that Karpenter launches.
func TestHealLaunchesOnDemandNode(t *testing.T) {
	s := start(t, setup{mode: true})
	s.deploy("web", 3, "200m", "64Mi", floor("0"))
	s.eventually(soon, s.isAvailableWithSplit("web", split{Spot: 3}))
	s.setFloor("web", "2")
	s.eventually(2*soon, s.isAvailableWithSplit("web", split{OnDemand: 2, Spot: 1}))
	s.eventually(soon, s.movedBySurge(2, "heal"))
	s.requireNoGeneratedLabels()
}

// TestReturnToSpotLaunchesNode: all replicas run on on-demand because Karpenter could launch
// nothing else. When Karpenter can launch spot again, the surplus surges to a new spot node, and
// the floor stays on on-demand.
func TestReturnToSpotLaunchesNode(t *testing.T) {
	s := start(t, setup{
		mode: true, controller: settings{"rebalance.returnToSpot": false},
		karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{{CapacityTypes: []string{lab.OnDemand}}}},
	})
	s.deploy("web", 3, "200m", "64Mi", floor("1"))
	s.eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 3}))
	s.pools[0].CapacityTypes = nil
	s.must(controlPlane.ApplyNodePool(s.ctx, s.pools[0]))
	s.must(s.controller.Stop())
	s.setup.controller = nil
	s.startController()
	s.eventually(2*soon, s.isAvailableWithSplit("web", split{OnDemand: 1, Spot: 2}))
	s.eventually(soon, s.movedBySurge(2, "return-to-spot"))
	s.requireNoGeneratedLabels()
}

// setFloor changes the number of a Deployment's replicas that must run on on-demand.
func (s *scenario) setFloor(name, value string) {
	s.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + minOnDemand + `":"` + value + `"}}}`)
	_, err := kube.AppsV1().Deployments(s.namespace).Patch(s.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// movedBySurge returns a check that `want` pods were moved by surge for this reason, and none in
// another way.
func (s *scenario) movedBySurge(want int, reason string) func() error {
	return func() error {
		const moves = "spot_aware_scheduler_migrations_total"
		if all, got := s.metricValue(s.controller, moves, nil), s.metricValue(s.controller, moves, map[string]string{
			"method": "surge", "reason": reason, "outcome": "moved",
		}); all != want || got != want {
			return fmt.Errorf("%d of %d moves are surges for %s, want %d of %d", got, all, reason, want, want)
		}
		return nil
	}
}
