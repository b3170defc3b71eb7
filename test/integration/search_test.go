package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// searches is how many decisions looked at that many nodes.
const searches = "spot_aware_scheduler_decision_duration_seconds_count"

// TestRarePool: a rare pool that came last and is in one zone is found, although a search looks at few nodes of a large cluster.
func TestRarePool(t *testing.T) {
	s := start(t, onDemand(300, 1))
	rare := spot(6, 8)
	for i := range rare {
		rare[i].Zone = "zone-c"
	}
	s.addNodes(rare...)
	s.eventually(soon, s.measures(len(rare), nodesMetric, map[string]string{"capacity_type": "spot"}))
	s.still() // and for the news that they are ready, of which no metric tells
	for i := range 5 {
		app := fmt.Sprintf("app-%d", i)
		s.deploy(app, 9)
		s.eventually(soon, s.is(app, split{onDemand: 1, spot: 8}))
	}
	s.must(s.measures(45, searches, map[string]string{"search": "few"})())
	s.must(s.measures(0, searches, map[string]string{"search": "all-after-few"})())
}

// TestWideSearch: what a narrow search does not see is found by the wide one in the same attempt: the one node that a pod's own affinity
// admits, and the victim of a preemption in a full cluster.
func TestWideSearch(t *testing.T) {
	s := start(t, onDemand(300, 2))
	low, high := priorityClass(t, "low", 1_000), priorityClass(t, "high", 1_000_000)
	seen := s.watch()
	for i := range 10 {
		anchor := fmt.Sprintf("anchor-%d", i)
		s.fill(fmt.Sprintf("od-%d", 30*i+7), 1, func(pod *v1.Pod) {
			pod.Labels, pod.Spec.PriorityClassName = map[string]string{"anchor": anchor}, high
		})
		s.deploy("beside-"+anchor, 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.PriorityClassName = high
			d.Spec.Template.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"anchor": anchor}},
			}}}}
		})
	}
	for i := range 10 {
		s.eventually(soon, s.on(fmt.Sprintf("beside-anchor-%d", i), fmt.Sprintf("od-%d", 30*i+7)))
	}
	if n, err := s.metric(searches, map[string]string{"search": "all-after-few"}); err != nil || n == 0 {
		t.Errorf("%d searches looked at all nodes after few, error %v; want some: each of the 10 pods has one node of 300", n, err)
	}

	for i := range 300 {
		if i%30 == 6 {
			continue // it has its anchor, and the pod beside it
		}
		s.fill(fmt.Sprintf("od-%d", i+1), 2, func(pod *v1.Pod) {
			pod.Spec.PriorityClassName = high
			if i == 150 {
				pod.Spec.PriorityClassName = low
			}
		})
	}
	s.deploy("important", 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high })
	s.eventually(soon, s.on("important", "od-151"))
	s.eventually(soon, func() error {
		if gone := seen.gone(); len(gone) != 1 {
			return fmt.Errorf("preempted: %v, want one of od-151", gone)
		}
		return nil
	})
}

// TestBatching: pods that are alike and have no siblings share one decision (opportunistic batching); replicas, whose decisions depend on each
// other, do not.
func TestBatching(t *testing.T) {
	s := start(t, onDemand(70, 1))
	used := func() int {
		n, err := s.metric("scheduler_batch_attempts_total", map[string]string{"result": "hint_used"})
		s.must(err)
		return n
	}
	s.deploy("replicas", 30, annotated(minOnDemand, "100%"))
	s.eventually(soon, s.is("replicas", split{onDemand: 30}))
	if n := used(); n != 0 {
		t.Errorf("%d of 30 replicas were placed as another one was, want none", n)
	}
	s.must(s.scheduler.Pause()) // so that they are tried one right after the other
	for i := range 30 {
		s.pod("alone", fmt.Sprintf("alone-%d", i))
	}
	s.must(s.scheduler.Resume())
	s.eventually(soon, s.is("alone", split{onDemand: 30}))
	if n := used(); n < 15 {
		t.Errorf("%d of 30 pods without siblings were placed as another one was, want most", n)
	}
}
