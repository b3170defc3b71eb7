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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestPreemption shows that a pod of the floor preempts on on-demand nodes, and only pods of a
// lower priority. It preempts nothing on spot, because room there would not help it.
func TestPreemption(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 1), live.Spot(2, 2)))
	seen := s.Watch()
	low, high := priorityClass(t, "low", 1_000), priorityClass(t, "high", 1_000_000)
	withPriority := func(class string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
	}
	important := func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high }
	s.fillNode("od-1", 1, withPriority(low))
	s.fillNode("od-2", 1, withPriority(high))
	s.fillNode("spot-1", 2, withPriority(low))
	// spot-2 is free, but the singletons below cannot use it.

	s.Deploy("first", 1, important)
	s.Eventually(soon, s.HasSplit("first", split{OnDemand: 1}))
	s.requireDeleted(seen, "fill-od-1-1")
	pods, err := s.Pods("first")
	s.Must(err)
	s.Eventually(soon, func() error {
		if at := seen.Pod(pods[0].Name); at.Node != "od-1" || !slices.Equal(at.Nominated, []string{"od-1"}) {
			return fmt.Errorf("%s is on %s and was nominated to %v, want od-1 only", pods[0].Name, at.Node, at.Nominated)
		}
		return nil
	})

	// Now on-demand runs no pod of a lower priority, but spot-1 does.
	s.Deploy("second", 1, important)
	second := s.waitingPod("second", "spot budget used up: 0 of at most 0 replicas")
	s.Deploy("three", 3, important)
	s.Eventually(soon, s.HasSplit("three", split{Spot: 2, Waiting: 1}))
	third := s.waitingPod("three", "spot budget used up: 2 of at most 2 replicas")
	s.awaitIdleScheduler()
	s.requireDeleted(seen, "fill-od-1-1")

	// A workload may preempt on spot within its budget, but not beyond: it preempts one of the two
	// possible victims.
	s.Deploy("two", 2, important)
	s.Eventually(soon, s.HasSplit("two", split{Spot: 1, Waiting: 1}))
	fourth := s.waitingPod("two", "spot budget used up: 1 of at most 1 replicas")
	s.awaitIdleScheduler()
	s.Must(s.HasSplit("three", split{Spot: 2, Waiting: 1})())
	s.Must(s.HasSplit("two", split{Spot: 1, Waiting: 1})())
	gone := gone(seen)
	if len(gone) != 2 || gone[0] != "fill-od-1-1" || !strings.HasPrefix(gone[1], "fill-spot-1-") {
		s.Errorf("preempted: %v, want fill-od-1-1 and one of spot-1", gone)
	}
	for _, pod := range []string{second, third, fourth} {
		if at := seen.Pod(pod); !at.Bound.IsZero() || len(at.Nominated) > 0 {
			s.Errorf("%s is on node %q and was nominated to %v, want neither", pod, at.Node, at.Nominated)
		}
	}
}

// requireDeleted checks that exactly these pods have been deleted so far.
func (s *scenario) requireDeleted(seen *live.History, want ...string) {
	s.Helper()
	s.Eventually(soon, func() error {
		if got := gone(seen); !slices.Equal(got, want) {
			return fmt.Errorf("gone: %v, want %v", got, want)
		}
		return nil
	})
}

// TestPreemptionWithinSpotBudget shows that replicas that wait together preempt no more pods on
// spot than their budget has room for. The replicas beyond the floor preempt none on on-demand.
func TestPreemptionWithinSpotBudget(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 1), live.Spot(6, 1)))
	seen := s.Watch()
	low, high := priorityClass(t, "lower", 1_000), priorityClass(t, "higher", 1_000_000)
	withPriority := func(class string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.PriorityClassName = class }
	}
	s.fillNode("od-1", 1, withPriority(high))
	for i := range 6 {
		s.fillNode(fmt.Sprintf("spot-%d", i+1), 1, withPriority(low))
	}
	s.Deploy("web", 6, live.Annotated(spot.MinOnDemandAnnotation, "5"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = high })
	s.Eventually(soon, s.HasSplit("web", split{OnDemand: 1, Spot: 1, Waiting: 4}))
	s.awaitIdleScheduler()
	if gone := gone(seen); len(gone) != 1 || !strings.HasPrefix(gone[0], "fill-spot-") {
		s.Errorf("evicted: %v, want one pod of spot for a budget of one", gone)
	}
}

// TestOverflowPreemptsNothingOnOnDemand shows that only floors preempt pods of low priority on
// on-demand. One of three replicas preempts a pod there. The replicas beyond the floor wait,
// whether spot is full or does not exist.
func TestOverflowPreemptsNothingOnOnDemand(t *testing.T) {
	for name, nodes := range map[string][]lab.NodeSpec{"spot is full": live.Spot(1, 1), "no spot": nil} {
		t.Run(name, func(t *testing.T) {
			s := start(t, slices.Concat(live.OnDemand(3, 1), nodes))
			seen := s.Watch()
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
			s.Deploy("web", 3, important)
			s.Eventually(soon, s.HasSplit("web", split{OnDemand: 1, Waiting: 2}))
			s.awaitIdleScheduler()
			if gone := gone(seen); len(gone) != 1 {
				s.Errorf("evicted: %v, want one pod for the floor", gone)
			}
			// The floor of another workload may preempt too.
			s.Deploy("single", 1, important)
			s.Eventually(soon, s.HasSplit("single", split{OnDemand: 1}))
			s.awaitIdleScheduler()
			if gone := gone(seen); len(gone) != 2 {
				s.Errorf("evicted: %v, want one pod for each floor", gone)
			}
			s.Must(s.HasSplit("web", split{OnDemand: 1, Waiting: 2})())
		})
	}
}
