package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// quiet is the time in which nothing may happen: several sync periods.
const quiet = 10 * time.Second

// TestHealAfterNodeLoss: a replica of the floor lost its node and runs on spot. The controller
// returns it when on-demand has room, but not before, and moves nothing after that.
func TestHealAfterNodeLoss(t *testing.T) {
	s := start(t, append(live.Spot(2, 10), live.OnDemand(1, 2)...)...)
	for _, app := range []string{"one", "two"} {
		s.Deploy(app, 3, live.Annotated(fallbackAfter, "3s"))
	}
	for _, app := range []string{"one", "two"} {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: 2}))
	}
	s.LoseNodes("od-1")
	for _, app := range []string{"one", "two"} {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: 3}))
		s.protect(app, 3, maxUnavailable("1"))
	}
	before := len(s.Seen.ReleasedOrRemoved(""))
	with := live.Settings{"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s"}
	s.StartController(with)
	s.RequireThroughout(quiet, func() error {
		if touched := s.Seen.ReleasedOrRemoved(""); len(touched) != before {
			return fmt.Errorf("moved although on-demand has no room: %q", touched)
		}
		return nil
	})

	s.AddNodes(live.OnDemand(2, 5)[1:]...)
	for _, app := range []string{"one", "two"} {
		s.Eventually(2*soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: 2}))
	}
	s.Eventually(soon, s.Moved(2, 2, "surge", "heal"))
	s.RequireThroughout(quiet, s.Moved(2, 2, "surge", "heal"))
	if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
		t.Errorf("below their floors: %v", deficits)
	}
}

// TestHealDuringPausedRollout: each of two revisions is within its budget, but together they are
// below the floor.
func TestHealDuringPausedRollout(t *testing.T) {
	s := start(t, append(live.Spot(2, 10), live.OnDemand(1, 2)...)...)
	s.Deploy("app", 4, live.Annotated(minOnDemand, "2"), live.Annotated(fallbackAfter, "3s"))
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 2, Spot: 2}))
	s.SetImage("app", "app:2")
	s.Eventually(soon, func() error {
		if d := s.Deployment("app"); d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < 2 {
			return fmt.Errorf("not in the middle of the rollout: %+v", d.Status)
		}
		return nil
	})
	s.PatchDeployment("app", `{"spec":{"paused":true}}`)
	s.LoseNodes("od-1")
	s.Eventually(2*soon, func() error {
		splits, err := live.Splits(s.Ctx, client, s.Namespace)
		if got := splits["app"]; err == nil && (got.Waiting > 0 || got.OnDemand > 0 || s.Seen.Serving("app", nil) != got.Spot) {
			err = fmt.Errorf("still moving: %+v", got)
		}
		return err
	})
	if d := s.Deployment("app"); d.Status.UpdatedReplicas == d.Status.Replicas {
		t.Fatalf("paused too late: %+v", d.Status)
	}
	before := len(s.Seen.ReleasedOrRemoved(""))
	s.StartController(onlyReason("heal"))
	s.RequireThroughout(quiet, func() error {
		if touched := s.Seen.ReleasedOrRemoved(""); len(touched) != before {
			return fmt.Errorf("moved although on-demand has no room: %q", touched)
		}
		return nil
	})

	s.AddNodes(live.OnDemand(2, 10)[1:]...)
	s.Eventually(time.Minute, func() error {
		splits, err := live.Splits(s.Ctx, client, s.Namespace)
		if got := splits["app"]; err == nil && (got.OnDemand < 2 || got.Waiting > 0) {
			err = fmt.Errorf("not healed: %+v", got)
		}
		return err
	})
	s.Eventually(soon, func() error {
		if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
			return fmt.Errorf("below its floor: %v", deficits)
		}
		return nil
	})
}

// TestMakeRoom: a singleton waits for on-demand, which is full of replicas that may run on spot.
func TestMakeRoom(t *testing.T) {
	s := start(t, live.OnDemand(1, 3)...)
	s.Deploy("surplus", 3)
	s.Eventually(soon, s.HasReadySplit("surplus", split{OnDemand: 3}))
	s.AddNodes(live.Spot(2, 10)...)
	s.Deploy("single", 1, live.Annotated(fallbackAfter, "never"))
	s.protect("surplus", 3, maxUnavailable("1"))
	s.StartController(onlyReason("makeRoom"))
	s.Eventually(2*soon, s.HasReadySplit("single", split{OnDemand: 1}))
	s.Eventually(soon, s.HasReadySplit("surplus", split{OnDemand: 2, Spot: 1}))
	s.Eventually(soon, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "make-room", "outcome": "moved"}))
	s.RequireThroughout(quiet, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_migrations_total", nil))
}

// TestReturnToSpot: replicas that were moved to on-demand return. In the end, the cost equals
// the cost of a new placement.
func TestReturnToSpot(t *testing.T) {
	s := start(t, live.OnDemand(2, 8)...)
	replicas := map[string]int{"four": 4, "six": 6, "single": 1}
	for app, n := range replicas {
		s.Deploy(app, n)
	}
	for app, n := range replicas {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: n}))
		s.protect(app, n, maxUnavailable("1"))
	}
	s.AddNodes(live.Spot(3, 10)...)
	s.StartController(onlyReason("returnToSpot"))
	for app, n := range replicas {
		s.Eventually(90*time.Second, s.HasReadySplit(app, split{OnDemand: 1, Spot: n - 1}))
	}
	s.Eventually(soon, s.Moved(8, 8, "surge", "return-to-spot"))
	s.RequireThroughout(quiet, s.Moved(8, 8, "surge", "return-to-spot"))

	// New workloads beside them get the same placement, so the cost is the same.
	for app, n := range replicas {
		s.Deploy("fresh-"+app, n)
		s.Eventually(soon, s.HasReadySplit("fresh-"+app, split{OnDemand: 1, Spot: n - 1}))
	}
}

// TestRolloutWithoutSpareOnDemand: on-demand has room only for the floor of the old revision. The
// rollout finishes, and the floor is unmet only during the rollout.
func TestRolloutWithoutSpareOnDemand(t *testing.T) {
	s := start(t, append(live.Spot(2, 10), live.OnDemand(1, 1)...)...)
	s.Deploy("app", 3, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}}
	})
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 1, Spot: 2}))
	s.protect("app", 3, maxUnavailable("1"))
	s.StartController(nil)
	s.SetImage("app", "app:2")
	s.Eventually(2*time.Minute, func() error {
		d := s.Deployment("app")
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 3 || d.Status.Replicas != 3 || d.Status.AvailableReplicas != 3 {
			return fmt.Errorf("not rolled out: %+v", d.Status)
		}
		return nil
	})
	s.Eventually(time.Minute, s.HasReadySplit("app", split{OnDemand: 1, Spot: 2}))
	s.Eventually(soon, func() error {
		if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
			return fmt.Errorf("below its floor: %v", deficits)
		}
		return nil
	})
}

// TestScaleDownPreservesFloor: the replicas on on-demand survive a scale-down. The controller
// patches each replica at most once.
func TestScaleDownPreservesFloor(t *testing.T) {
	s := start(t, append(live.Spot(2, 10), live.OnDemand(2, 10)...)...)
	s.Deploy("app", 10, live.Annotated(minOnDemand, "3"))
	// A deletion cost that a user has set stays, and the controller adds no other.
	s.Deploy("own", 4, live.Annotated(minOnDemand, "2"), func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{deletionCost: "-5"}
	})
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 3, Spot: 7}))
	s.Eventually(soon, s.HasReadySplit("own", split{OnDemand: 2, Spot: 2}))
	floor := s.podsWithDeletionCost("app")
	if len(floor) != 0 {
		t.Fatalf("pods with a deletion cost before the controller started: %v", floor)
	}
	began := time.Now()
	s.StartController(nil)
	s.Eventually(soon, func() error {
		if n := len(s.podsWithDeletionCost("app")); n != 3 {
			return fmt.Errorf("%d pods have a deletion cost, want 3", n)
		}
		return nil
	})
	floor = s.podsWithDeletionCost("app")
	// Wait until the ReplicaSet controller has observed the costs. No API reports that.
	s.RequireThroughout(2*time.Second, func() error {
		if now := s.podsWithDeletionCost("app"); !slices.Equal(now, floor) {
			return fmt.Errorf("the pods with a deletion cost are %v now, and were %v", now, floor)
		}
		return nil
	})
	s.Scale("app", 3)
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 3}))
	s.RequireThroughout(quiet, s.HasReadySplit("app", split{OnDemand: 3}))
	if left := s.podsWithDeletionCost("app"); !slices.Equal(left, floor) {
		t.Errorf("the remaining pods are %v, want the floor, %v", left, floor)
	}
	patches := map[string]int{}
	for _, r := range s.writes(began) {
		if r.verb != "patch" || r.resource != "pods" {
			t.Errorf("an unexpected request: %s", r)
		}
		patches[r.name]++
	}
	for pod, n := range patches {
		if n > 1 {
			t.Errorf("%s was patched %d times", pod, n)
		}
	}
	if len(patches) != 3 {
		t.Errorf("%d pods were patched, want the 3 of the floor: %v", len(patches), patches)
	}
}

// podsWithDeletionCost returns the UIDs of the app's live pods with a deletion cost above 0, in
// order.
func (s *scenario) podsWithDeletionCost(app string) []types.UID {
	s.Helper()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + app})
	s.Must(err)
	var uids []types.UID
	for _, pod := range pods {
		if cost := pod.Annotations[deletionCost]; cost != "" && cost[0] != '-' && cost != "0" {
			uids = append(uids, pod.UID)
		}
	}
	slices.Sort(uids)
	return uids
}
