//go:build long

package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// shortage is the time in which Karpenter cannot launch spot nodes.
const shortage = 2 * time.Minute

func TestLongSpotShortage(t *testing.T)                  { spotShortage(t, false) }
func TestLongSpotShortageWithConsolidation(t *testing.T) { spotShortage(t, true) }

// spotShortage removes all spot capacity for two minutes. Karpenter launches on-demand nodes for
// the overflow. When spot is available again, replicas return to it, and consolidation removes
// the on-demand nodes. With consolidating, consolidation is enabled from the start, otherwise
// only at the end.
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
	all := map[string]int{}
	for i := range apps {
		app := fmt.Sprintf("app-%d", i)
		all[app] = replicas
		s.deploy(app, replicas, "500m", "64Mi")
	}
	s.Eventually(time.Minute, s.complete)
	s.Eventually(soon, s.floorsMet)
	before, err := s.onDemandUse()
	s.Must(err)

	over := time.Now().Add(shortage)
	s.limit("spot", "0")
	s.loseSpot()
	// A released replica that is about to return to spot still serves, although its Deployment
	// does not count it.
	s.Eventually(time.Minute, func() error {
		if err := serve(s.Seen, all, nil); err != nil {
			return err
		}
		return s.onlyOnDemand()
	})
	overflow, err := s.onDemandUse()
	s.Must(err)
	t.Logf("on-demand: %+v before, %+v during the shortage", before, overflow)
	s.RequireThroughout(time.Until(over), s.onlyOnDemand)

	back := time.Now()
	s.limit("spot", "")
	s.Eventually(5*time.Minute, func() error {
		now, err := s.onDemandUse()
		if err == nil && now.pods > before.pods {
			err = fmt.Errorf("%d pods run on on-demand, %d before the shortage", now.pods, before.pods)
		}
		return err
	})
	t.Logf("the overflow had returned %s after the shortage", time.Since(back).Round(time.Second))
	if !consolidating {
		s.consolidate(5 * time.Second)
	}
	s.Eventually(5*time.Minute, func() error {
		// Consolidation replaces nodes by at most one node. So one node may remain that is larger
		// than the nodes before.
		now, err := s.onDemandUse()
		if err == nil && now.cpus > before.cpus && now.nodes > 1 {
			err = fmt.Errorf("%d on-demand CPUs, %d before the shortage", now.cpus, before.cpus)
		}
		return err
	})
	t.Logf("on-demand nodes removed %s after the shortage; consolidation evicted %d pods", time.Since(back).Round(time.Second), s.consolidated())
	s.Eventually(soon, s.complete)
	s.Eventually(soon, s.floorsMet)
	s.requireNoGeneratedLabels()
	s.Auditor.Require(t)
}
