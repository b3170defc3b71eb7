//go:build long

package autoscaler

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongSlowNodes: a node takes a minute to start, and fallbackAfter and rolloutRelief are 30
// s. A pod nevertheless waits for its node. Otherwise the node would stay empty, and Karpenter
// would launch a second node.
func TestLongSlowNodes(t *testing.T) {
	const startup = time.Minute
	s := start(t, setup{
		mode:      true,
		safety:    live.Settings{"fallbackAfter": "30s", "rolloutRelief": "30s"},
		karpenter: lab.KarpenterOptions{NodeRegistrationDelay: startup},
	})
	s.deploy("single", 1, "800m", "64Mi")
	s.deploy("web", 4, "400m", "64Mi", floor("2"))
	s.Eventually(startup+soon, s.complete)
	s.Eventually(soon, s.floorsMet)
	s.requireNoDeletionBeforeBinding("single", "web")
	if onDemand, spot := len(launched(s.Seen, lab.OnDemand)), len(launched(s.Seen, lab.Spot)); onDemand != 1 || spot > 1 {
		t.Errorf("%d on-demand nodes and %d spot nodes launched, want at most 1 and 1", onDemand, spot)
	}

	// The floor of the new revision finds no room either.
	s.SetImage("web", "app:2")
	s.Eventually(3*startup+soon, s.complete)
	s.Eventually(soon, s.floorsMet)
	s.requireNoDeletionBeforeBinding("single", "web")
	if empty := empty(s.Seen); len(empty) > 0 {
		t.Errorf("%d nodes never had a pod: %+v", len(empty), empty)
	}
	t.Logf("%d on-demand nodes and %d spot nodes launched", len(launched(s.Seen, lab.OnDemand)), len(launched(s.Seen, lab.Spot)))
	s.requireNoGeneratedLabels()
}

// requireNoDeletionBeforeBinding fails the test if a pod of the apps was deleted before it was
// bound.
func (s *scenario) requireNoDeletionBeforeBinding(apps ...string) {
	s.Helper()
	for _, app := range apps {
		for _, pod := range s.Seen.Pods(app) {
			if !pod.Left.IsZero() && pod.Bound.IsZero() {
				s.Errorf("%s was deleted after it had waited for %s", pod.Name, pod.Left.Sub(pod.Created).Round(time.Second))
			}
		}
	}
}
