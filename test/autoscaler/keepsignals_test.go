package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestKeptSchedulerSignals: kube-scheduler sees a drain that only a condition announces, because
// the controller taints the node until the condition ends. The controller serves the metrics and
// records the events that our scheduler would.
func TestKeptSchedulerSignals(t *testing.T) {
	s := startKept(t, append(live.OnDemand(2, 10), live.Spot(2, 10)...)...)
	setDrain := func(status v1.ConditionStatus) {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"DrainInProgress","status":%q}]}}`, status)
		_, err := kube.CoreV1().Nodes().Patch(s.Ctx, "od-1", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
		s.Must(err)
	}
	isTainted := func(want bool) func() error {
		return func() error {
			if got := slices.ContainsFunc(s.Node("od-1").Spec.Taints, func(t v1.Taint) bool {
				return t.Key == "spot-aware-scheduler.io/interruption" && t.Value == "DrainInProgress"
			}); got != want {
				return fmt.Errorf("od-1 is tainted: %t, want %t", got, want)
			}
			return nil
		}
	}
	s.Deploy("first", 1, kept, live.OnlyOn("kubernetes.io/hostname", "od-2")) // the controller does not move it
	s.Eventually(soon, s.HasReadySplit("first", live.Split{OnDemand: 1}))
	setDrain(v1.ConditionTrue)
	s.Eventually(soon, isTainted(true))
	s.Deploy("web", 6, kept, live.Annotated("spot-aware-scheduler.io/min-on-demand", "4"), live.Annotated("spot-aware-scheduler.io/fallback-after", "soon"))
	s.Eventually(soon, s.HasReadySplit("web", live.Split{OnDemand: 4, Spot: 2}))
	pods, err := s.Pods("web")
	s.Must(err)
	for i := range pods {
		if pods[i].Spec.NodeName == "od-1" {
			t.Errorf("pod %s runs on od-1, which is being drained", pods[i].Name)
		}
	}
	setDrain(v1.ConditionFalse)
	s.Eventually(soon, isTainted(false))

	metric := func(want int, name string, labels map[string]string) {
		labels["profile"] = "keep-scheduler"
		s.Eventually(soon, s.HasMetric(s.Controller, want, "spot_aware_scheduler_"+name, labels))
	}
	metric(5, "bound_pods", map[string]string{"capacity_type": "on-demand", "part": "floor"})
	metric(2, "bound_pods", map[string]string{"capacity_type": "spot", "part": "beyond-floor"})
	metric(5, "placements_total", map[string]string{"capacity_type": "on-demand", "reason": "floor"})
	metric(6, "invalid_annotations_total", map[string]string{})
	metric(0, "floor_deficit_replicas", map[string]string{})
	s.Eventually(soon, s.HasEvent(pods[0].Name, "InvalidSpotPolicy", "soon"))
}

// TestKeptSchedulerLabelGrace: kube-scheduler places a replica of the floor on a node without a
// capacity label, because the affinity excludes only spot. When the label marks the node as
// spot, the controller moves the replica to on-demand.
func TestKeptSchedulerLabelGrace(t *testing.T) {
	s := startKept(t, append(live.OnDemand(1, 10), live.Spot(1, 10)...)...)
	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = true })
	late := live.Spot(1, 10)[0]
	late.Name, late.Capacity = "late", ""
	s.AddNodes(late)
	s.Deploy("web", 3, kept)
	s.Eventually(soon, s.HasReadySplit("web", live.Split{Spot: 3}))
	on := func(node string) int {
		pods, err := s.Pods("web")
		s.Must(err)
		return len(slices.DeleteFunc(pods, func(p v1.Pod) bool { return p.Spec.NodeName != node }))
	}
	if on("late") == 0 {
		t.Fatal("no replica of the floor runs on the node without a label")
	}
	s.EditNode("late", func(node *v1.Node) { node.Labels["node.kubernetes.io/capacity"] = "spot" })
	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = false })
	began := time.Now()
	s.Eventually(time.Minute, s.HasReadySplit("web", live.Split{OnDemand: 1, Spot: 2}))
	t.Logf("healed %s after the label", time.Since(began).Round(100*time.Millisecond))
	if on("od-1") != 1 {
		t.Error("no replica runs on od-1")
	}
}
