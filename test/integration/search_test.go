package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// searches is the number of decisions, by the scope of their node search.
const searches = "spot_aware_scheduler_decision_duration_seconds_count"

// TestRarePool has 300 on-demand nodes and a rare spot pool in one zone, which is added last. The
// scheduler finds the pool, although a search covers only a few nodes of a large cluster.
func TestRarePool(t *testing.T) {
	s := start(t, live.OnDemand(300, 1))
	rare := live.Spot(6, 8)
	for i := range rare {
		rare[i].Zone = "zone-c"
	}
	s.AddNodes(rare...)
	s.Eventually(soon, s.hasMetric(len(rare), nodesMetric, map[string]string{"capacity_type": "spot"}))
	s.awaitIdleScheduler() // no metric shows whether the scheduler has observed that the nodes are ready
	for i := range 5 {
		app := fmt.Sprintf("app-%d", i)
		s.Deploy(app, 9)
		s.Eventually(soon, s.HasSplit(app, split{OnDemand: 1, Spot: 8}))
	}
	s.Must(s.hasMetric(45, searches, map[string]string{"search": "few"})())
	s.Must(s.hasMetric(0, searches, map[string]string{"search": "all-after-few"})())
}

// TestWideSearch has cases that a narrow search cannot solve: the only node that a pod's affinity
// admits, and the only victim of a preemption in a full cluster. The wide search solves them in the
// same attempt.
func TestWideSearch(t *testing.T) {
	s := start(t, live.OnDemand(300, 2))
	low, high := priorityClass(t, "low", 1_000), priorityClass(t, "high", 1_000_000)
	seen := s.Watch()
	for i := range 10 {
		anchor := fmt.Sprintf("anchor-%d", i)
		s.fillNode(fmt.Sprintf("od-%d", 30*i+7), 1, func(pod *v1.Pod) {
			pod.Labels, pod.Spec.PriorityClassName = map[string]string{"anchor": anchor}, high
		})
		s.Deploy("beside-"+anchor, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.PriorityClassName = high
			d.Spec.Template.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"anchor": anchor}},
			}}}}
		})
	}
	for i := range 10 {
		s.Eventually(soon, s.runsOnNodes(fmt.Sprintf("beside-anchor-%d", i), fmt.Sprintf("od-%d", 30*i+7)))
	}
	if n, err := s.metric(searches, map[string]string{"search": "all-after-few"}); err != nil || n == 0 {
		t.Errorf("%d searches covered all nodes after few, error %v; want some: each of the 10 pods fits one node of 300", n, err)
	}

	for i := range 300 {
		if i%30 == 6 {
			continue // has its anchor and the pod beside it
		}
		s.fillNode(fmt.Sprintf("od-%d", i+1), 2, func(pod *v1.Pod) {
			pod.Spec.PriorityClassName = high
			if i == 150 {
				pod.Spec.PriorityClassName = low
			}
		})
	}
	s.Deploy("important", 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high })
	s.Eventually(soon, s.runsOnNodes("important", "od-151"))
	s.Eventually(soon, func() error {
		if gone := gone(seen); len(gone) != 1 {
			return fmt.Errorf("preempted: %v, want one of od-151", gone)
		}
		return nil
	})
}

// TestBatching shows that identical pods without siblings share one decision (opportunistic
// batching). Replicas do not, because their decisions depend on each other.
func TestBatching(t *testing.T) {
	s := start(t, live.OnDemand(70, 1))
	used := func() int {
		n, err := s.metric("scheduler_batch_attempts_total", map[string]string{"result": "hint_used"})
		s.Must(err)
		return n
	}
	s.Deploy("replicas", 30, live.Annotated(minOnDemand, "100%"))
	s.Eventually(soon, s.HasSplit("replicas", split{OnDemand: 30}))
	if n := used(); n != 0 {
		t.Errorf("%d of 30 replicas shared a decision, want none", n)
	}
	s.Must(s.Scheduler.Pause()) // so that the scheduler tries them one right after the other
	for i := range 30 {
		s.pod("alone", fmt.Sprintf("alone-%d", i))
	}
	s.Must(s.Scheduler.Resume())
	s.Eventually(soon, s.HasSplit("alone", split{OnDemand: 30}))
	if n := used(); n < 15 {
		t.Errorf("%d of 30 pods without siblings shared a decision, want most", n)
	}
}
