package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The controller creates PodDisruptionBudgets for Deployments that opt in, so that a drain waits
// for their replacements.

const protectAnnotation = "spot-aware-scheduler.io/protect"

// protected is an edit that opts in to protection.
var protected = live.Annotated(protectAnnotation, "true")

// hasControllerBudget returns a check that the controller's budget of the app exists, has a status,
// and allows `maxUnavailable` unavailable pods.
func (s *scenario) hasControllerBudget(app, maxUnavailable string) func() error {
	return func() error {
		b, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.Ctx, app+"-protected", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := b.Spec.MaxUnavailable.String(); got != maxUnavailable || b.Status.ObservedGeneration < b.Generation {
			return fmt.Errorf("budget of %s allows %s unavailable pods (observed generation %d of %d), want %s",
				app, got, b.Status.ObservedGeneration, b.Generation, maxUnavailable)
		}
		return nil
	}
}

// hasNoControllerBudget returns a check that the controller has no budget for the app.
func (s *scenario) hasNoControllerBudget(app string) func() error {
	return func() error {
		_, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.Ctx, app+"-protected", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("the controller has a budget for %s", app)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// TestProtect: during a drain of three singletons without budgets of their own, each always has a
// ready endpoint, and the drain ends. The controller's budgets exist as long as the Deployments
// opt in and no other budget selects the pods.
func TestProtect(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	apps := []string{"one", "two", "three"}
	for _, app := range apps {
		s.Deploy(app, 1, protected)
	}
	for _, app := range apps {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
		s.serve(app, 1)
	}
	s.AddNodes(live.OnDemand(2, 5)[1:]...)
	s.StartController(drains())
	for _, app := range apps {
		s.Eventually(soon, s.hasControllerBudget(app, "0"))
		s.Eventually(soon, s.HasEvent(app, "Protected", app+"-protected"))
	}
	took, err := s.drain("od-1", time.Minute)
	s.Must(err)
	t.Logf("the drain took %s", took.Round(time.Millisecond))
	s.awaitDrained("od-1", apps)

	s.PatchDeployment("one", `{"metadata":{"annotations":{"`+protectAnnotation+`":"false"}}}`)
	s.Eventually(soon, s.hasNoControllerBudget("one"))

	s.budget("users", "two", maxUnavailable("0"))
	s.Eventually(soon, s.hasNoControllerBudget("two"))
	s.Eventually(soon, s.HasEvent("two", "NotProtected", "PodDisruptionBudget users selects its pods"))
	s.Must(client.PolicyV1().PodDisruptionBudgets(s.Namespace).Delete(s.Ctx, "users", metav1.DeleteOptions{}))
	s.Eventually(soon, s.hasControllerBudget("two", "0"))
}

// TestProtectWithoutReplacement: if a replacement finds no room, the budget protects the pod for
// surgeTimeout. A pod that can never be replaced first is not protected, and a StatefulSet gets
// no budget. Events state the reasons.
func TestProtectWithoutReplacement(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	s.Deploy("stuck", 1, protected)
	s.Deploy("recreated", 1, protected, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Annotations: map[string]string{protectAnnotation: "true"}},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
			Spec: v1.PodSpec{
				SchedulerName: "spot-aware-scheduler", Containers: []v1.Container{{Name: "c", Image: "registry.invalid/c"}},
			},
		}},
	}, metav1.CreateOptions{})
	s.Must(err)
	for _, app := range []string{"stuck", "recreated", "set"} {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
	}
	with := drains()
	with["migration.surgeTimeout"] = "10s"
	s.StartController(with)
	s.Eventually(soon, s.hasControllerBudget("stuck", "0"))
	s.Eventually(soon, s.hasControllerBudget("recreated", "1"))
	s.Eventually(soon, s.HasEvent("recreated", "ProtectionRelaxed", "its Deployment's strategy allows no surge"))
	s.Eventually(soon, s.HasEvent("set", "NotProtected", "StatefulSet"))

	took, err := s.drain("od-1", time.Minute)
	s.Must(err)
	t.Logf("the drain took %s", took.Round(time.Millisecond))
	if took < 10*time.Second || took > 25*time.Second {
		t.Errorf("the drain took %s, want 10 s and little more", took)
	}
	s.Eventually(soon, s.HasEvent("stuck", "ProtectionRelaxed", "must leave node od-1, but was not replaced within 10s"))
	s.uncordon("od-1")
	s.Eventually(soon, s.hasControllerBudget("stuck", "0"))

	s.Must(client.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "stuck", metav1.DeleteOptions{}))
	s.Eventually(soon, s.hasNoControllerBudget("stuck")) // by the garbage collector, or by the controller
}
