package autoscaler

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// systemNode is a node of a managed node group of EKS for the system, on on-demand.
func systemNode() lab.NodeSpec {
	return lab.NodeSpec{
		Name: "managed-1", Labels: map[string]string{"eks.amazonaws.com/capacityType": "ON_DEMAND", "eks.amazonaws.com/nodegroup": "system"},
		Taints: []v1.Taint{{Key: "CriticalAddonsOnly", Value: "true", Effect: v1.TaintEffectNoSchedule}},
	}
}

// TestManagedNodesBesideNodePool: a usual cluster of EKS. A managed node group on on-demand is for
// the system, and its nodes are no evidence against the NodePool, which permits both types. One
// workload selects the pool by its label. The other one does not tolerate the taint of the group.
// Status agrees: no pod is exempt.
func TestManagedNodesBesideNodePool(t *testing.T) {
	s := start(t, setup{keeps: true, karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{{Name: "apps", Labels: map[string]string{"team": "apps"}}}}})
	s.AddNodes(systemNode())
	selects := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{"team": "apps"} }
	s.deploy("early", 2, "300m", "64Mi", floor("0"))
	s.Eventually(soon, s.isAvailableWithSplit("early", split{Spot: 2})) // these nodes could run all pods
	s.deploy("web", 4, "300m", "64Mi", floor("2"), selects)
	s.deploy("api", 3, "300m", "64Mi", floor("1"))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 2, Spot: 2}))
	s.Eventually(soon, s.isAvailableWithSplit("api", split{OnDemand: 1, Spot: 2}))
	s.Eventually(soon, func() error {
		status := exec.CommandContext(s.Ctx, filepath.Join(controlPlane.Root, "bin", "kubectl-spot"), "status", "-n", s.Namespace, "-o", "json",
			"--kubeconfig="+controlPlane.Kubeconfig, "--scheduler-config="+filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml"))
		out, _ := status.Output() // the exit status is not 0, because the controller has no Deployment here
		var read struct {
			Items []struct {
				Name, State                  string
				Floor, OnDemand, WithoutSpot int
				Reasons                      []string
			}
		}
		if err := json.Unmarshal(out, &read); err != nil {
			return err
		}
		got := map[string]string{}
		for _, w := range read.Items {
			got[w.Name] = fmt.Sprintf("%s, floor %d, on-demand %d, without spot %d %v", w.State, w.Floor, w.OnDemand, w.WithoutSpot, w.Reasons)
		}
		want := map[string]string{
			"early": "OK, floor 0, on-demand 0, without spot 0 []", "web": "OK, floor 2, on-demand 2, without spot 2 []",
			"api": "OK, floor 1, on-demand 1, without spot 1 []",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("status (-want +got):\n%s", diff)
		}
		return nil
	})
}
