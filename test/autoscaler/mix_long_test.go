//go:build long

package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// tolerance is the allowed ratio of the nodes' price to the lower bound.
const tolerance = 1.05

func TestLongMix(t *testing.T)     { mix(t, setup{mode: true}) }
func TestLongKeptMix(t *testing.T) { mix(t, setup{keeps: true}) }

// mix creates 100 Deployments with several floors in an empty cluster while Karpenter
// consolidates.
func mix(t *testing.T, with setup) {
	const apps = 100
	with.karpenter.NodePools = []lab.NodePool{{ConsolidateAfter: 5 * time.Second}}
	s := start(t, with)
	began := time.Now()
	cpus, floors := []string{"100m", "200m", "300m", "500m"}, []string{"1", "30%", "2"}
	var need demand
	pods := 0
	for i := range apps {
		replicas, cpu, atLeast := i%10+1, cpus[i%len(cpus)], floors[i%len(floors)]
		s.deploy(fmt.Sprintf("app-%03d", i), replicas, cpu, "64Mi", floor(atLeast))
		quantity := resource.MustParse(cpu)
		need.floor += int64(floorOf(atLeast, replicas)) * quantity.MilliValue()
		need.all += int64(replicas) * quantity.MilliValue()
		pods += replicas
	}
	s.Eventually(5*time.Minute, s.complete)
	first, err := s.price()
	s.Must(err)
	ready := time.Since(began)
	s.Eventually(soon, s.floorsMet)
	s.changeNodePools()

	types, err := controlPlane.KarpenterTypes(lab.DefaultKarpenterTypes...)
	s.Must(err)
	bound := lowestPrice(types, need, 100)
	t.Logf("%d pods of %d Deployments with %dm CPU, including %dm for floors, ready after %s for %.4f USD/h; lower bound %.4f USD/h",
		pods, apps, need.all, need.floor, ready.Round(time.Second), first, bound)
	s.Eventually(10*time.Minute, func() error {
		price, err := s.price()
		if err != nil {
			return err
		}
		if price > tolerance*bound {
			return fmt.Errorf("the nodes cost %.4f USD/h, want %.4f at most", price, tolerance*bound)
		}
		if err := s.floorsMet(); err != nil {
			return err
		}
		return s.complete()
	})
	price, err := s.price()
	s.Must(err)
	t.Logf("%.4f USD/h, %.1f %% above the lower bound, after %s; %d on-demand nodes and %d spot nodes launched; consolidation evicted %d pods",
		price, 100*(price/bound-1), time.Since(began).Round(time.Second), len(launched(s.Seen, lab.OnDemand)), len(launched(s.Seen, lab.Spot)), s.consolidated())
	if empty := empty(s.Seen); len(empty) > 0 {
		t.Errorf("%d nodes never had a pod: %+v", len(empty), empty)
	}
	s.requireNoGeneratedLabels()
}
