package autoscaler

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// A hard spread over capacity types keeps its meaning: the controller adds no affinity that hides a
// domain. With overflow Never, the spread wins.
func TestCapacitySpread(t *testing.T) {
	s := start(t, setup{mode: true})
	s.deploy("allow", 10, "200m", "64Mi", live.SpreadOver(lab.KarpenterCapacityLabel))
	s.deploy("never", 10, "200m", "64Mi", live.SpreadOver(lab.KarpenterCapacityLabel), func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	})
	for _, app := range []string{"allow", "never"} {
		s.Eventually(soon, s.isAvailableWithSplit(app, split{OnDemand: 5, Spot: 5}))
	}
	s.requireNoGeneratedLabels()
}
