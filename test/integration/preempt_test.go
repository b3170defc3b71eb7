package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// TestPreemption shows that a pod of the floor preempts on on-demand nodes, and only pods of a
// lower priority. It preempts nothing on spot, because room there would not help it.
func TestPreemption(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 1), spotNodes(2, 2)))
	seen := s.watch()
	low, high := priorityClass(t, "low", 1_000), priorityClass(t, "high", 1_000_000)
	withPriority := func(class string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
	}
	important := func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high }
	s.fillNode("od-1", 1, withPriority(low))
	s.fillNode("od-2", 1, withPriority(high))
	s.fillNode("spot-1", 2, withPriority(low))
	// spot-2 is free, but the singletons below cannot use it.

	s.deploy("first", 1, important)
	s.eventually(soon, s.hasSplit("first", split{onDemand: 1}))
	s.requireDeleted(seen, "fill-od-1-1")
	pods, err := s.pods("first")
	s.must(err)
	s.eventually(soon, func() error {
		if at := seen.of(pods[0].Name); at.node != "od-1" || !slices.Equal(at.nominated, []string{"od-1"}) {
			return fmt.Errorf("%s is on %s and was nominated to %v, want od-1 only", pods[0].Name, at.node, at.nominated)
		}
		return nil
	})

	// Now on-demand runs no pod of a lower priority, but spot-1 does.
	s.deploy("second", 1, important)
	second := s.waitingPod("second", "spot budget used up: 0 of at most 0 replicas")
	s.deploy("three", 3, important)
	s.eventually(soon, s.hasSplit("three", split{spot: 2, waiting: 1}))
	third := s.waitingPod("three", "spot budget used up: 2 of at most 2 replicas")
	s.awaitIdleScheduler()
	s.requireDeleted(seen, "fill-od-1-1")

	// A workload may preempt on spot within its budget, but not beyond: it preempts one of the two
	// possible victims.
	s.deploy("two", 2, important)
	s.eventually(soon, s.hasSplit("two", split{spot: 1, waiting: 1}))
	fourth := s.waitingPod("two", "spot budget used up: 1 of at most 1 replicas")
	s.awaitIdleScheduler()
	s.must(s.hasSplit("three", split{spot: 2, waiting: 1})())
	s.must(s.hasSplit("two", split{spot: 1, waiting: 1})())
	gone := seen.gone()
	if len(gone) != 2 || gone[0] != "fill-od-1-1" || !strings.HasPrefix(gone[1], "fill-spot-1-") {
		s.Errorf("preempted: %v, want fill-od-1-1 and one of spot-1", gone)
	}
	for _, pod := range []string{second, third, fourth} {
		if at := seen.of(pod); !at.bound.IsZero() || len(at.nominated) > 0 {
			s.Errorf("%s is on node %q and was nominated to %v, want neither", pod, at.node, at.nominated)
		}
	}
}

// requireDeleted checks that exactly these pods have been deleted so far.
func (s *scenario) requireDeleted(seen *podRecords, want ...string) {
	s.Helper()
	s.eventually(soon, func() error {
		if got := seen.gone(); !slices.Equal(got, want) {
			return fmt.Errorf("gone: %v, want %v", got, want)
		}
		return nil
	})
}

// TestPreemptionWithinSpotBudget shows that replicas that wait together preempt no more pods on
// spot than their budget has room for. The replicas beyond the floor preempt none on on-demand.
func TestPreemptionWithinSpotBudget(t *testing.T) {
	s := start(t, slices.Concat(onDemand(2, 1), spotNodes(6, 1)))
	seen := s.watch()
	low, high := priorityClass(t, "lower", 1_000), priorityClass(t, "higher", 1_000_000)
	withPriority := func(class string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
	}
	s.fillNode("od-1", 1, withPriority(high))
	for i := range 6 {
		s.fillNode(fmt.Sprintf("spot-%d", i+1), 1, withPriority(low))
	}
	s.deploy("web", 6, annotated(spot.MinOnDemandAnnotation, "5"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high })
	s.eventually(soon, s.hasSplit("web", split{onDemand: 1, spot: 1, waiting: 4}))
	s.awaitIdleScheduler()
	if gone := seen.gone(); len(gone) != 1 || !strings.HasPrefix(gone[0], "fill-spot-") {
		s.Errorf("evicted: %v, want one pod of spot for a budget of one", gone)
	}
}

// TestOverflowPreemptsNothingOnOnDemand shows that only floors preempt pods of low priority on
// on-demand. One of three replicas preempts a pod there. The replicas beyond the floor wait,
// whether spot is full or does not exist.
func TestOverflowPreemptsNothingOnOnDemand(t *testing.T) {
	for name, nodes := range map[string][]lab.NodeSpec{"spot is full": spotNodes(1, 1), "no spot": nil} {
		t.Run(name, func(t *testing.T) {
			s := start(t, slices.Concat(onDemand(3, 1), nodes))
			seen := s.watch()
			low, high := priorityClass(t, "placeholder", -10), priorityClass(t, "service", 1_000_000)
			withPriority := func(class string) func(*v1.Pod) {
				return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
			}
			for i := range 3 {
				s.fillNode(fmt.Sprintf("od-%d", i+1), 1, withPriority(low))
			}
			if len(nodes) > 0 {
				s.fillNode("spot-1", 1, withPriority(high))
			}
			important := func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high }
			s.deploy("web", 3, important)
			s.eventually(soon, s.hasSplit("web", split{onDemand: 1, waiting: 2}))
			s.awaitIdleScheduler()
			if gone := seen.gone(); len(gone) != 1 {
				s.Errorf("evicted: %v, want one pod for the floor", gone)
			}
			// The floor of another workload may preempt too.
			s.deploy("single", 1, important)
			s.eventually(soon, s.hasSplit("single", split{onDemand: 1}))
			s.awaitIdleScheduler()
			if gone := seen.gone(); len(gone) != 2 {
				s.Errorf("evicted: %v, want one pod for each floor", gone)
			}
			s.must(s.hasSplit("web", split{onDemand: 1, waiting: 2})())
		})
	}
}
