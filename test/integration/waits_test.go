package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestWaitsSurviveLeaders kills the leader more often than pods fall back. In long_test.go, make
// test-long uses the shipped times.
func TestWaitsSurviveLeaders(t *testing.T) {
	waitsSurviveLeaders(t, 45*time.Second, 12*time.Second, 15*time.Second, func(config map[string]any) {
		election := config["leaderElection"].(map[string]any)
		election["leaseDuration"], election["renewDeadline"], election["retryPeriod"] = "4s", "3s", "1s"
	})
}

// waitsSurviveLeaders has 50 pods wait for on-demand while one of two schedulers leads. It kills
// the leader at that interval and restarts it at once, as the kubelet does. Each pod must fall back
// when it has waited for fallbackAfter, or late by at most the time of a takeover. Some of the pods
// had scheduling gates for a while, which does not count as waiting. The leader passes on that a
// pool loses a node.
func waitsSurviveLeaders(t *testing.T, fallback, interval, late time.Duration, edits ...func(map[string]any)) {
	const plain, foreign = 45, 5
	s := start(t, append(live.OnDemand(1, 1), live.Spot(3, 30)...), append(edits, live.Settings{"fallbackAfter": fallback.String(), "rolloutRelief": "never"}.EditSafety)...)
	s.EditNode("spot-3", func(node *v1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: "spot-aware-scheduler.io/interruption", Effect: v1.TaintEffectNoSchedule})
	})
	pair, seen := s.startStandby(), s.Watch()
	s.fillNode("od-1", 1)
	s.Deploy("web", plain, live.Annotated(minOnDemand, "100%"))
	s.Deploy("gated", foreign, live.Annotated(minOnDemand, "100%"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: foreignGate}}
	})
	wait := func(app string, n int) {
		s.Eventually(soon, func() error {
			pods, err := s.Pods(app)
			waiting := 0
			for i := range pods {
				if !seen.Pod(pods[i].Name).Unschedulable.IsZero() {
					waiting++
				}
			}
			if err == nil && waiting != n {
				err = fmt.Errorf("%d of %d pods of %s wait", waiting, n, app)
			}
			return err
		})
	}
	wait("web", plain)
	began := time.Now()
	kills := 0
	for next := began.Add(interval); next.Before(began.Add(fallback + interval)); next = next.Add(interval) {
		if kills == 1 {
			pods, err := s.Pods("gated")
			s.Must(err)
			for i := range pods {
				s.patchPod(pods[i].Name, `{"spec":{"schedulingGates":null}}`)
			}
			wait("gated", foreign)
		}
		time.Sleep(time.Until(next))
		leading := s.leader(pair)
		s.Must(pair[leading].Kill())
		again, err := controlPlane.StartAgain(pair[leading])
		s.Must(err)
		pair[leading] = again
		kills++
	}
	s.Eventually(fallback+late, s.haveSplits(map[string]split{"web": {Spot: plain}, "gated": {Spot: foreign}, "fill": {OnDemand: 1}}))
	earliest, latest := time.Hour, time.Duration(0)
	for _, app := range []string{"web", "gated"} {
		pods, err := s.Pods(app)
		s.Must(err)
		for i := range pods {
			at := seen.Pod(pods[i].Name)
			took := at.Bound.Sub(at.Unschedulable)
			earliest, latest = min(earliest, took), max(latest, took)
			if took < fallback-time.Second || took > fallback+late {
				t.Errorf("%s fell back after %s, want %s to %s", pods[i].Name, took, fallback, fallback+late)
			}
		}
	}
	s.Eventually(soon, func() error {
		lease, err := client.CoordinationV1().Leases("kube-system").Get(s.Ctx, "spot-aware-scheduler", metav1.GetOptions{})
		if err == nil && !strings.Contains(lease.Annotations["spot-aware-scheduler.io/memory"], "c5.xlarge/") {
			err = fmt.Errorf("annotations of the lease: %v", lease.Annotations)
		}
		return err
	})
	t.Logf("%d kills; the pods fell back after %.1f s to %.1f s", kills, earliest.Seconds(), latest.Seconds())
}
