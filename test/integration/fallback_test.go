package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestFallback has pods wait longer than fallbackAfter. The cluster does not change during a wait,
// so only the clock can requeue the pod.
func TestFallback(t *testing.T) {
	const gated = 20 * time.Second
	s := start(t, slices.Concat(live.OnDemand(1, 1), live.Spot(2, 5)), live.Settings{"fallbackAfter": "5s"}.EditSafety)
	seen := s.Watch()
	s.fillNode("od-1", 1)

	// A gated pod does not count as unschedulable, however long its gate stays. When the gate is
	// removed, its condition still has the time at which the pod was gated.
	s.Deploy("gated", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	})
	gatedSince := time.Now()

	s.Deploy("app", 1)
	s.requireFallback(seen, s.waitingPod("app", "spot budget used up: 0 of at most 0 replicas of "+s.Namespace+"/app-"), 1)

	// The ordinal of the floor falls back. The next ordinal of OrderedReady then starts as usual.
	replicas := int32(2)
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}, Template: live.PodTemplate("set"),
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.requireFallback(seen, s.waitingPod("set", "ordinal belongs to the floor: the first 1 "), 2)
	s.Eventually(soon, s.HasSplit("set", split{Spot: 2}))

	s.Eventually(gated+soon, func() error {
		if since := time.Since(gatedSince); since < gated {
			return fmt.Errorf("gated for only %s", since)
		}
		return nil
	})
	pods, err := s.Pods("gated")
	s.Must(err)
	s.patchPod(pods[0].Name, `{"spec":{"schedulingGates":null}}`)
	s.requireFallback(seen, s.waitingPod("gated", "spot budget used up: 0 of at most 0 replicas of "+s.Namespace+"/gated-"), 3)

	s.Eventually(soon, s.hasMetric(0, "spot_aware_scheduler_waiting_for_on_demand_pods", nil))
}

// requireFallback checks that the pod is bound to spot 5 to 7 s after it was first found
// unschedulable. It also checks the event, and that the metric counts nth fallbacks.
func (s *scenario) requireFallback(seen *live.History, pod string, nth int) {
	s.Helper()
	at := s.awaitBinding(seen, pod, soon)
	if capacity := s.capacityOf(at.Node); capacity != lab.Spot {
		s.Errorf("%s is on %s, which is %s, want spot", pod, at.Node, capacity)
	}
	// The check uses the times in the scheduler's own log: the pod's condition and the watch that
	// delivers it can be late. The scheduler logs the wait right before it starts.
	if took := s.logTime("Successfully bound pod to node", pod).Sub(s.logTime("Pod waiting", pod)); took < 5*time.Second || took > 7*time.Second {
		s.Errorf("%s was bound %s after it was first found unschedulable, want 5 s to 7 s", pod, took)
	} else {
		s.Logf("%s was bound %s after it was first found unschedulable", pod, took.Round(time.Millisecond))
	}
	s.Eventually(soon, func() error {
		notes, err := s.eventsOf(s.Namespace, "FellBackToSpot")
		if err == nil && !strings.Contains(notes[pod], "node "+at.Node) {
			err = fmt.Errorf("event FellBackToSpot of %s: %q, want it to contain %s", pod, notes[pod], at.Node)
		}
		return err
	})
	s.Eventually(soon, s.hasMetric(nth, "spot_aware_scheduler_placements_total", map[string]string{"capacity_type": "spot", "reason": "fallback"}))
}

// logTime returns the time at which the scheduler first logged the message about the pod, in year
// 0.
func (s *scenario) logTime(message, pod string) (at time.Time) {
	s.Helper()
	s.Eventually(soon, func() error {
		log, err := os.ReadFile(s.Scheduler.Log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, fmt.Sprintf("%q pod=%q", message, s.Namespace+"/"+pod)) {
				at, err = live.LogTime(line)
				return err
			}
		}
		return fmt.Errorf("%q was not logged about %s", message, pod)
	})
	return at
}
