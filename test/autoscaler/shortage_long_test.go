//go:build long

package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// shortage is how long there is no spot to buy.
const shortage = 2 * time.Minute

func TestLongSpotShortage(t *testing.T)                  { spotShortage(t, false) }
func TestLongSpotShortageWithConsolidation(t *testing.T) { spotShortage(t, true) }

// spotShortage takes all spot away for two minutes: Karpenter buys on-demand for the overflow, replicas return to spot when it is back, and
// consolidation removes the on-demand nodes. With consolidating it is on from the start, otherwise at the end only. (Rows 4 and 4b.)
func spotShortage(t *testing.T, consolidating bool) {
	const apps, replicas = 5, 4
	pools := []lab.NodePool{
		{Name: "spot", CapacityTypes: []string{lab.Spot}, Weight: 10}, // tried first
		{Name: "on-demand", CapacityTypes: []string{lab.OnDemand}},
	}
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{NodePools: pools}})
	if consolidating {
		s.consolidate(5 * time.Second)
	}
	for i := range apps {
		s.deploy(fmt.Sprintf("app-%d", i), replicas, "500m", "64Mi")
	}
	all := func(want split) func() error {
		return func() error {
			for i := range apps {
				if err := s.is(fmt.Sprintf("app-%d", i), want)(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	s.eventually(time.Minute, all(split{OnDemand: 1, Spot: replicas - 1}))
	before, err := s.onDemandCPU()
	s.must(err)

	over := time.Now().Add(shortage)
	s.limit("spot", "0")
	s.loseSpot()
	s.eventually(time.Minute, all(split{OnDemand: replicas}))
	overflow, err := s.onDemandCPU()
	s.must(err)
	t.Logf("on-demand CPUs: %d before, %d for the overflow", before, overflow)
	s.stays(time.Until(over), s.onlyOnDemand)

	back := time.Now()
	s.limit("spot", "")
	s.eventually(5*time.Minute, all(split{OnDemand: 1, Spot: replicas - 1}))
	t.Logf("all replicas returned to spot %s after it was back", time.Since(back).Round(time.Second))
	if !consolidating {
		s.consolidate(5 * time.Second)
	}
	s.eventually(5*time.Minute, func() error {
		now, err := s.onDemandCPU()
		if err == nil && now > before {
			err = fmt.Errorf("%d on-demand CPUs, %d before the shortage", now, before)
		}
		return err
	})
	t.Logf("on-demand nodes removed %s after spot was back; consolidation evicted %d pods", time.Since(back).Round(time.Second), s.consolidated())
	s.eventually(soon, all(split{OnDemand: 1, Spot: replicas - 1}))
	s.noInventedLabels()
	s.auditor.Require(t)
}
