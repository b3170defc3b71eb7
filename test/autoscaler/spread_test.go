package autoscaler

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// spreadOver returns an edit that adds a hard topology spread constraint over a node label.
func spreadOver(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: d.Spec.Selector},
		}
	}
}

// A hard spread over capacity types keeps its meaning: the controller adds no affinity that hides a
// domain. With overflow Never, the spread wins.
func TestCapacitySpread(t *testing.T) {
	s := start(t, setup{mode: true})
	s.deploy("allow", 10, "200m", "64Mi", spreadOver(lab.KarpenterCapacityLabel))
	s.deploy("never", 10, "200m", "64Mi", spreadOver(lab.KarpenterCapacityLabel), func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	})
	for _, app := range []string{"allow", "never"} {
		s.eventually(soon, s.isAvailableWithSplit(app, split{OnDemand: 5, Spot: 5}))
	}
	s.requireNoGeneratedLabels()
}
