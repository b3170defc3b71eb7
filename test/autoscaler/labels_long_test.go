//go:build long

package autoscaler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongSpotWithoutKarpenterLabel: spot nodes with only the project's label run no pods of a
// floor. Karpenter treats them as on-demand and launches nothing until they also have its label.
func TestLongSpotWithoutKarpenterLabel(t *testing.T) {
	s := start(t, setup{mode: true})
	spot := live.Spot(2, 4)
	s.Must(controlPlane.CreateNodes(s.Ctx, spot...))
	s.deploy("web", 4, "1", "64Mi")
	s.deploy("single", 1, "1", "64Mi")
	s.Eventually(soon, s.HasSplit("web", split{Spot: 3, Waiting: 1}))
	s.RequireThroughout(20*time.Second, s.HasSplit("single", split{Waiting: 1}))
	s.requireNoGeneratedLabels()

	for _, node := range spot {
		s.Must(live.EditNode(s.Ctx, kube, soon, node.Name, func(n *v1.Node) { n.Labels[lab.KarpenterCapacityLabel] = lab.Spot }))
	}
	s.Eventually(soon, s.isAvailableWithSplit("single", split{OnDemand: 1}))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 1, Spot: 3}))
	s.requireNoGeneratedLabels()
}
