//go:build long

package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const gatedApps, gatedReplicas = 20, 10

// TestLongControllerKilled kills the controller when 200 pods have their gates. The next
// controller assigns them.
func TestLongControllerKilled(t *testing.T) {
	s := start(t, setup{mode: true})
	s.killController()
	began := time.Now()
	s.startController()
	s.Eventually(2*time.Minute, s.complete)
	t.Logf("all pods ran %s after the start of the next controller", time.Since(began).Round(time.Second))
	s.Eventually(soon, s.floorsMet)
}

// TestLongWithoutController: no controller assigns 200 pods. The scheduler removes their gates
// after gateTimeout.
func TestLongWithoutController(t *testing.T) {
	const gateTimeout = 30 * time.Second
	s := start(t, setup{mode: true, safety: live.Settings{"gateTimeout": gateTimeout.String()}})
	// Karpenter does not see the floors of pods whose gates the scheduler has removed.
	s.Must(controlPlane.CreateNodes(s.Ctx, append(live.OnDemand(2, 8), live.Spot(2, 16)...)...))
	began := s.killController()
	s.Eventually(gateTimeout+time.Minute, s.complete)
	t.Logf("all pods ran %s after their creation", time.Since(began).Round(time.Second))
	for i := range gatedApps {
		for _, pod := range s.Seen.Pods(appName(i)) {
			if waited := pod.Bound.Sub(pod.Created); waited < gateTimeout-2*time.Second {
				t.Errorf("%s was bound %s after its creation, want at least %s", pod.Name, waited.Round(time.Second), gateTimeout)
			}
		}
	}
	s.Must(s.floorsMet())
}

func appName(i int) string { return fmt.Sprintf("app-%02d", i) }

// killController creates 200 pods while the controller is paused, kills the controller, and
// returns the time at which it created the first pod.
func (s *scenario) killController() time.Time {
	s.Helper()
	s.Must(s.Controller.Pause())
	began := time.Now()
	for i := range gatedApps {
		s.deploy(appName(i), gatedReplicas, "100m", "64Mi")
	}
	s.Eventually(soon, s.HasGated("", gatedApps*gatedReplicas))
	s.Must(s.Controller.Kill())
	return began
}
