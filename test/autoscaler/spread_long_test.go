//go:build long

package autoscaler

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// The skew and the floors are kept when the workloads of TestZoneSpread change and when spot is
// reclaimed. No pod waits for longer than Karpenter needs. A scale-down may break any spread,
// because no controller of Kubernetes considers it then; a rollout restores it.
func TestLongZoneSpread(t *testing.T) {
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{NodePools: zonalPools()}})
	apps := s.deployZonal()
	settled := func(what string) {
		t.Helper()
		for _, app := range apps {
			s.eventually(4*time.Minute, s.isSpread(app, v1.LabelTopologyZone, zones...))
			if pending := s.seen.longestPending(app); pending > soon {
				t.Errorf("a pod of %s was pending for %s", app, pending)
			}
		}
		s.logSpread(what, apps...)
	}
	each := func(change func(app string)) {
		for _, app := range apps {
			change(app)
		}
	}
	settled("created")
	each(func(app string) { s.scale(app, 15) })
	settled("scaled up")
	each(func(app string) { s.scale(app, 7) })
	s.eventually(time.Minute, s.complete)
	s.eventually(soon, s.floorsMet)
	s.logSpread("scaled down", apps...)
	each(func(app string) { s.update(app, "app:2") })
	settled("rolled out")
	each(func(app string) { s.scale(app, 10) })
	settled("scaled up again")
	s.loseSpot()
	settled("spot reclaimed")
	s.auditor.Require(t)
}
