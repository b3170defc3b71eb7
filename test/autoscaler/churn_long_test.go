//go:build long

package autoscaler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

var churnTime = flag.Duration("churn", 15*time.Minute, "time for which TestLongChurn changes workloads, for each scheduler")

// TestLongChurn scales, rolls out, deletes and creates Deployments while Karpenter consolidates.
// It then makes the same changes with kube-scheduler, once with the policy, and once with pods that
// prefer spot.
func TestLongChurn(t *testing.T) {
	pools := func() lab.KarpenterOptions {
		return lab.KarpenterOptions{NodePools: []lab.NodePool{{ConsolidateAfter: 10 * time.Second}}}
	}
	t.Run("spot-aware-scheduler", func(t *testing.T) { churn(t, setup{mode: true, karpenter: pools()}) })
	t.Run("keep-scheduler", func(t *testing.T) { churn(t, setup{keeps: true, karpenter: pools()}) })
	t.Run("kube-scheduler", func(t *testing.T) {
		start(t, setup{stock: true, karpenter: pools()}).changeDeployments(*churnTime)
	})
}

// churn changes Deployments. The auditor fails the test if a pod that the floor requires on
// on-demand was scheduled to spot.
func churn(t *testing.T, with setup) {
	s := start(t, with)
	s.changeDeployments(*churnTime)
	s.Eventually(soon, s.floorsMet)
	s.requireNoGeneratedLabels()
	s.Auditor.Require(t)
}

// changeDeployments changes a random Deployment every two seconds and logs the cost. The sequence
// of changes is always the same.
func (s *scenario) changeDeployments(length time.Duration) {
	s.Helper()
	const apps = 30
	random := rand.New(rand.NewPCG(1, 2))
	cpus, floors := []string{"100m", "300m", "500m"}, []string{"1", "30%", "2"}
	create := func(i int) {
		s.deploy(fmt.Sprintf("app-%02d", i), random.IntN(10)+1, cpus[i%len(cpus)], "64Mi", floor(floors[i/len(cpus)%len(floors)]), s.preferSpot)
	}
	for i := range apps {
		create(i)
	}
	s.Eventually(5*time.Minute, s.complete)

	changes := map[string]int{}
	var prices []float64
	below := 0 // number of samples with a workload below its floor
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-ticker.C {
		i := random.IntN(apps)
		name := fmt.Sprintf("app-%02d", i)
		switch change := random.IntN(4); change {
		case 0, 1:
			s.Scale(name, random.IntN(10)+1)
			changes["scaled"]++
		case 2:
			s.SetImage(name, fmt.Sprintf("app:%d", random.Int()))
			changes["rolled out"]++
		default:
			s.remove(name)
			s.Eventually(soon, s.isDeleted(name))
			create(i)
			changes["recreated"]++
		}
		price, err := s.price()
		s.Must(err)
		prices = append(prices, price)
		if s.Auditor != nil {
			below += len(s.Auditor.Deficits())
		}
	}
	s.Eventually(5*time.Minute, s.complete)
	sum := 0.0
	for _, price := range prices {
		sum += price
	}
	s.Logf("%s of churn (%v): consolidation evicted %d pods; nodes launched: %d on-demand, %d spot, %d never had a pod; %.4f USD/h on average; %d deficits in %d samples",
		length, changes, s.consolidated(), len(launched(s.Seen, lab.OnDemand)), len(launched(s.Seen, lab.Spot)), len(empty(s.Seen)),
		sum/float64(len(prices)), below, len(prices))
}

// preferSpot is an edit that makes pods of the stock scheduler prefer spot.
func (s *scenario) preferSpot(d *appsv1.Deployment) {
	if s.stock {
		preferSpot(lab.KarpenterCapacityLabel)(d)
	}
}
