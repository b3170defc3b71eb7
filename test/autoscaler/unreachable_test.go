package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The controller wants to move pods of the tests in this file, but no node of the wanted capacity
// type can run them, and Karpenter can add none. unreachable_long_test.go watches for 15 minutes.

// watchUnreachable is the time for which a test watches the pods. A controller that ignores the
// taint or a known refusal releases the first pod within seconds, and the longest move takes 20 s.
const watchUnreachable = 45 * time.Second

// readNodePools is the interval at which the controller, which starts before Karpenter, reads
// NodePools.
const readNodePools = 5 * time.Second

// impatient makes the controller retry moves as often as it can.
var impatient = live.Settings{"gating.nodeStartup": "10s", "migration.surgeTimeout": "20s"}

func TestTaintedSpot(t *testing.T)             { taintedSpot(t, watchUnreachable) }
func TestTaintedSpotWithoutNodes(t *testing.T) { taintedSpotWithoutNodes(t, watchUnreachable) }
func TestOnDemandUnavailable(t *testing.T)     { onDemandUnavailable(t, watchUnreachable) }

// taintedSpot: the spot nodes have a taint that only another workload tolerates. The replicas
// beyond the floor stay on on-demand.
func taintedSpot(t *testing.T, length time.Duration) {
	s := startTainted(t)
	s.deploy("batch", 2, "500m", "64Mi", floor("0"), toleratesBatch)
	s.Eventually(soon, s.isAvailableWithSplit("batch", split{Spot: 2}))
	s.deploy("web", 4, "300m", "64Mi", floor("1"))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 4}))
	s.requireNoUselessMove(length, map[string]int{"batch": 0, "web": 0})
	s.Must(s.isAvailableWithSplit("web", split{OnDemand: 4})())
}

// taintedSpotWithoutNodes: like taintedSpot, but the spot NodePool has never had a node. The
// controller reads the taint from the NodePool.
func taintedSpotWithoutNodes(t *testing.T, length time.Duration) {
	s := startTainted(t)
	time.Sleep(2 * readNodePools)
	s.deploy("web", 4, "300m", "64Mi", floor("1"))
	s.Eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 4}))
	s.requireNoUselessMove(length, map[string]int{"web": 0})
	s.Must(s.isAvailableWithSplit("web", split{OnDemand: 4})())
}

// onDemandUnavailable: Karpenter may add no on-demand node, so the floors are not met. Karpenter
// has refused a node for the pods of web before they fell back to spot. The floor of late is raised
// when its pods run on spot. The controller reads the limit of the NodePool, and releases no pod.
func onDemandUnavailable(t *testing.T, length time.Duration) {
	s := start(t, setup{
		mode: true, controller: impatient, safety: live.Settings{"fallbackAfter": "15s"},
		karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{
			{Name: "spot", CapacityTypes: []string{lab.Spot}},
			{Name: "on-demand", CapacityTypes: []string{lab.OnDemand}, CPULimit: "0"},
		}},
	})
	s.deploy("late", 3, "300m", "64Mi", floor("0"))
	s.deploy("web", 4, "300m", "64Mi", floor("2"))
	s.Eventually(soon, s.isAvailableWithSplit("late", split{Spot: 3}))
	s.Eventually(time.Minute+soon, s.isAvailableWithSplit("web", split{Spot: 4}))
	s.setFloor("late", "2") // the controller has read the NodePools long before
	s.requireNoUselessMove(length, map[string]int{"late": 0, "web": 0})
	s.Must(s.isAvailableWithSplit("web", split{Spot: 4})())
	s.Eventually(time.Minute, s.isAvailableWithSplit("late", split{Spot: 3}))
}

// startTainted starts a scenario with an on-demand NodePool, and a spot NodePool that Karpenter
// tries first and whose nodes have a taint.
func startTainted(t *testing.T) *scenario {
	t.Helper()
	return start(t, setup{mode: true, controller: impatient, karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{
		{Name: "spot", CapacityTypes: []string{lab.Spot}, Weight: 10, Taints: []v1.Taint{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}}},
		{Name: "on-demand", CapacityTypes: []string{lab.OnDemand}},
	}}})
}

// toleratesBatch is an edit that makes the pods tolerate the taint of startTainted.
func toleratesBatch(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}}
}

// requireNoUselessMove watches the apps for this time. It fails the test if more pods of an app
// are released than given, or if a ready pod leaves: no move of the test can reach its goal.
func (s *scenario) requireNoUselessMove(length time.Duration, releases map[string]int) {
	s.Helper()
	s.RequireThroughout(length, func() error {
		for app, most := range releases {
			if err := uselessMove(s.Seen, app, most); err != nil {
				return err
			}
		}
		return nil
	})
	for app := range releases {
		s.logReleases(app)
	}
	refusals, err := s.refusals()
	s.Must(err)
	s.Logf("watched for %s; Karpenter refused nodes for %d pods", length, refusals)
	s.Auditor.Require(s.T)
}

// uselessMove returns an error if pods of an app were released more often than given, or if a
// ready pod left. The error names the capacity type of the pod and of its possible successors.
func uselessMove(h *live.History, app string, most int) error {
	pods, released := h.Pods(app), 0
	for _, pod := range pods {
		released += len(pod.Releases)
		if pod.Ready.IsZero() || pod.Left.IsZero() {
			continue
		}
		since := pod.Left.Add(-time.Second) // a successor of an evicted pod is created at once
		if len(pod.Releases) > 0 {
			since = pod.Releases[len(pod.Releases)-1].Began
		}
		var successors []string
		for _, other := range pods {
			if other.Created.After(since) {
				successors = append(successors, fmt.Sprintf("%s on %q", other.Name, other.Capacity))
			}
		}
		return fmt.Errorf("the ready pod %s on %s left (evicted: %t, releases: %v); created since: %s",
			pod.Name, pod.Capacity, pod.Evicted, pod.Releases, strings.Join(successors, ", "))
	}
	if released > most {
		return fmt.Errorf("pods of %s were released %d times, want at most %d: %+v", app, released, most, pods)
	}
	return nil
}

// logReleases logs each release of an app.
func (s *scenario) logReleases(app string) {
	pods, released := s.Seen.Pods(app), 0
	for _, pod := range pods {
		for _, r := range pod.Releases {
			released++
			took := "did not end"
			if !r.Ended.IsZero() {
				took = "ended after " + r.Ended.Sub(r.Began).Round(100*time.Millisecond).String()
			}
			s.Logf("%s: the release of %s at %s %s", app, pod.Name, r.Began.Format("15:04:05"), took)
		}
	}
	s.Logf("%s: %d pods in total, %d releases", app, len(pods), released)
}

// refusals returns the number of pods for which Karpenter reported that it can add no node.
func (s *scenario) refusals() (int, error) {
	list, err := kube.CoreV1().Events(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	if err != nil {
		return 0, err
	}
	pods := map[string]bool{}
	for _, event := range list.Items {
		if strings.Contains(event.Message, "Failed to schedule pod") {
			pods[event.InvolvedObject.Name] = true
		}
	}
	return len(pods), nil
}
