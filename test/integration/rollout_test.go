package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// group is a node label. It reserves nodes for the pods of one Deployment.
const group = "example.com/group"

// rolloutLimit limits the duration of a rollout. A rollout replaces one replica at a time. Each
// replica takes a second to start, and may have to wait 30 s for rollout relief.
const rolloutLimit = 4 * time.Minute

// rollout is an update of a Deployment. The Deployment has its own nodes, so its on-demand capacity
// is known.
type rollout struct {
	name            string
	replicas, floor int
	strategy        appsv1.DeploymentStrategy
	// middle is called when the update is half complete; nil means nothing.
	middle func(ctx context.Context, s *scenario, name string) error
	// room is the number of slots of its on-demand node.
	room int
}

// rollouts returns every combination of size, strategy and course. The names start with the prefix.
func rollouts(prefix string, room func(rollout) int) []rollout {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	strategies := map[string]appsv1.DeploymentStrategy{
		"default": {},
		"surge": {Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &none}},
	}
	courses := map[string]func(context.Context, *scenario, string) error{
		"once":   nil,
		"twice":  func(ctx context.Context, s *scenario, name string) error { return s.update(ctx, name, imageOf(3)) },
		"undone": func(ctx context.Context, s *scenario, name string) error { return s.update(ctx, name, imageOf(1)) },
		"paused": pauseAndResume,
	}
	var all []rollout
	for replicas, floor := range map[int]int{1: 1, 3: 1, 10: 3} {
		for strategyName, strategy := range strategies {
			for course, middle := range courses {
				r := rollout{
					name: fmt.Sprintf("%s-%d-%s-%s", prefix, replicas, strategyName, course), replicas: replicas, floor: floor,
					strategy: strategy, middle: middle,
				}
				r.room = room(r)
				all = append(all, r)
			}
		}
	}
	return all
}

// TestPlacementRollouts runs all rollouts concurrently, each with spare on-demand capacity and with
// capacity for only the floor. Every rollout must finish. No revision may ever have more pods on
// spot than its budget, except by rollout relief. Through the extender, the test runs only the
// rollouts with spare capacity, because the others require the wake-up of waiting pods.
func TestPlacementRollouts(t *testing.T) {
	spare := rollouts("spare", func(r rollout) int { return 2 * r.replicas })
	var scarce []rollout
	if !throughExtender {
		scarce = rollouts("scarce", func(r rollout) int { return r.floor })
	}
	s := rollOut(t, slices.Concat(spare, scarce))
	relieved, err := s.eventsOf(s.Namespace, "RolloutRelief")
	s.Must(err)

	for _, r := range spare {
		at, err := s.SplitOf(r.name)
		s.Must(err)
		if at.OnDemand < r.floor {
			s.Errorf("%s: %+v, want %d or more on on-demand", r.name, at, r.floor)
		}
	}
	for pod := range relieved {
		if strings.HasPrefix(pod, "spare-") {
			s.Errorf("%s was relieved although on-demand had room", pod)
		}
	}

	if !throughExtender {
		s.requireRolloutRelief(scarce, len(relieved))
	}
}

// requireRolloutRelief checks that some of the rollouts left a floor unmet, and that the metrics
// count the deficit and the relieved pods.
func (s *scenario) requireRolloutRelief(scarce []rollout, relieved int) {
	s.Helper()
	workloads, replicas := 0, 0
	for _, r := range scarce {
		at, err := s.SplitOf(r.name)
		s.Must(err)
		if lacking := r.floor - at.OnDemand; lacking > 0 {
			s.Logf("%s: %+v, deficit %d", r.name, at, lacking)
			workloads, replicas = workloads+1, replicas+lacking
		}
	}
	if workloads == 0 {
		s.Error("no rollout left a floor unmet: the metrics were not tested")
	}
	s.Eventually(soon, s.hasMetric(workloads, "spot_aware_scheduler_floors_unmet_workloads", nil))
	s.Eventually(soon, s.hasMetric(replicas, "spot_aware_scheduler_floor_deficit_replicas", nil))
	if relieved < replicas {
		s.Errorf("%d pods were relieved, but the deficit is %d replicas", relieved, replicas)
	}
	s.Eventually(soon, s.hasMetric(relieved, "spot_aware_scheduler_placements_total", map[string]string{"reason": "rollout-relief"}))
}

// rollOut runs rollouts concurrently, each on its own nodes with ample spot capacity.
func rollOut(t *testing.T, all []rollout) *scenario {
	var specs []lab.NodeSpec
	for _, r := range all {
		own := append(live.Nodes("od-"+r.name, lab.OnDemand, "m5.xlarge", 1, r.room), live.Nodes("spot-"+r.name, lab.Spot, "c5.xlarge", 1, 30)...)
		for i := range own {
			own[i].Labels = map[string]string{group: r.name}
		}
		specs = append(specs, own...)
	}
	s := start(t, specs)
	onSpot := s.watchSpot()

	began := time.Now()
	running, ctx := errgroup.WithContext(s.Ctx)
	for _, r := range all {
		s.Deploy(r.name, r.replicas, live.Annotated(minOnDemand, fmt.Sprint(r.floor)), func(d *appsv1.Deployment) {
			d.Spec.Strategy = r.strategy
			// The delay keeps a rollout half complete until this test has observed and paused it,
			// also on a loaded machine.
			d.Spec.MinReadySeconds = int32(max(30/r.replicas, 3))
			d.Spec.Template.Spec.NodeSelector = map[string]string{group: r.name}
			d.Spec.Template.Spec.Containers[0].Image = imageOf(1)
		})
		running.Go(func() error {
			if err := r.run(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	s.Must(running.Wait())
	s.Logf("%d rollouts finished after %s", len(all), time.Since(began).Round(time.Second))

	budgets := map[string]int{}
	for _, r := range all {
		budgets[r.name] = r.replicas - r.floor
	}
	s.requireWithinBudgets(onSpot(), budgets)
	return s
}

// run updates the Deployment and returns when the rollout has finished.
func (r rollout) run(ctx context.Context, s *scenario) error {
	if err := live.Until(ctx, rolloutLimit, s.rolledOut(ctx, r.name)); err != nil {
		return err
	}
	if err := s.update(ctx, r.name, imageOf(2)); err != nil {
		return err
	}
	if r.middle != nil {
		if err := s.halfUpdated(ctx, r.name); err != nil {
			return err
		}
		if err := r.middle(ctx, s, r.name); err != nil {
			return err
		}
	}
	return live.Until(ctx, rolloutLimit, s.rolledOut(ctx, r.name))
}

func imageOf(revision int) string { return fmt.Sprintf("registry.invalid/app:%d", revision) }

// update sets the Deployment's image.
func (s *scenario) update(ctx context.Context, name, image string) error {
	return s.patch(ctx, name, fmt.Sprintf(`{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": %q}]}}}}`, image))
}

func (s *scenario) patch(ctx context.Context, name, patch string) error {
	_, err := client.AppsV1().Deployments(s.Namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// halfUpdated returns when at least half of the replicas are updated. It fails if no old replica is
// left by then.
func (s *scenario) halfUpdated(ctx context.Context, name string) error {
	return live.Until(ctx, rolloutLimit, func() error {
		d, err := client.AppsV1().Deployments(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case d.Status.ObservedGeneration < d.Generation || 2*d.Status.UpdatedReplicas < *d.Spec.Replicas:
			return fmt.Errorf("not half complete: %+v", d.Status)
		case d.Status.Replicas == d.Status.UpdatedReplicas:
			s.Errorf("%s: observed too late, the update is already complete: %+v", name, d.Status)
		}
		return nil
	})
}

// pauseAndResume pauses the rollout until all its pods are bound.
func pauseAndResume(ctx context.Context, s *scenario, name string) error {
	if err := s.patch(ctx, name, `{"spec": {"paused": true}}`); err != nil {
		return err
	}
	err := live.Until(ctx, rolloutLimit, func() error {
		d, err := client.AppsV1().Deployments(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at, err := s.SplitOf(name)
		switch {
		case err != nil:
			return err
		case d.Status.ObservedGeneration < d.Generation, at.Waiting > 0, at.OnDemand+at.Spot != int(d.Status.Replicas):
			return fmt.Errorf("pods still starting or terminating: %+v, %+v", at, d.Status)
		case d.Status.Replicas == d.Status.UpdatedReplicas:
			s.Errorf("%s: paused too late, the update is complete: %+v", name, d.Status)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.patch(ctx, name, `{"spec": {"paused": false}}`)
}

// rolledOut returns a check that all replicas of the Deployment are available and of the newest
// revision, and that no other pods exist.
func (s *scenario) rolledOut(ctx context.Context, name string) func() error {
	return func() error {
		d, err := client.AppsV1().Deployments(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, status := *d.Spec.Replicas, d.Status
		if status.ObservedGeneration < d.Generation || status.Replicas != want || status.UpdatedReplicas != want || status.AvailableReplicas != want {
			return fmt.Errorf("not rolled out: want %d, have %+v", want, status)
		}
		return nil
	}
}
