package integration

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestPlacementRules(t *testing.T) {
	other, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	important, critical := priorityClass(t, "important", 1000), priorityClass(t, "critical", 500)
	rule := func(minOnDemand any, more map[string]any) map[string]any {
		more["minOnDemand"] = minOnDemand
		return more
	}
	s := start(t, slices.Concat(live.OnDemand(3, 30), live.Spot(3, 30)), set("rules", rules(
		rule("100%", map[string]any{"name": "guaranteed", "qosClasses": []any{"Guaranteed"}}),
		rule(4, map[string]any{"name": "critical", "priorityClasses": []any{critical}}),
		rule(3, map[string]any{"name": "important", "minPriority": 1000}),
		rule("50%", map[string]any{"name": "other", "namespaces": []any{other.Name}}),
		rule("20%", map[string]any{"name": "front", "podSelector": map[string]any{"matchLabels": map[string]any{"tier": "front"}},
			"annotationPolicy": "Ignore"}),
		rule(2, map[string]any{"name": "stateful", "ownerKinds": []any{"StatefulSet"}}),
		rule("0", map[string]any{"name": "bare", "ownerKinds": []any{"Pod"}}),
		rule(1, map[string]any{"name": "jobs", "ownerKinds": []any{"Job"}}),
	)))
	elsewhere := &scenario{Scenario: s.In(t)}
	elsewhere.Namespace, s.Others = other.Name, []string{other.Name}

	front := func(d *appsv1.Deployment) { d.Spec.Template.Labels["tier"] = "front" }
	s.Deploy("guaranteed", 10, front, func(d *appsv1.Deployment) {
		both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Mi")}
		d.Spec.Template.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: both, Limits: both}
	})
	s.Deploy("critical", 10, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = critical })
	s.Deploy("important", 10, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = important })
	s.Deploy("important-annotated", 10, live.Annotated(minOnDemand, "6"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = important })
	elsewhere.Deploy("elsewhere", 10, front)
	s.Deploy("front", 10, front, live.Annotated(minOnDemand, "6"), podAnnotated(minOnDemand, "7"))
	s.Deploy("no-rule", 10)
	s.statefulSet("stateful", 4, func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	s.barePod("bare")
	s.job("job", 4, 4)

	s.Eventually(soon, s.haveSplits(map[string]split{
		"guaranteed": {OnDemand: 10}, "critical": {OnDemand: 4, Spot: 6}, "important": {OnDemand: 3, Spot: 7},
		"important-annotated": {OnDemand: 6, Spot: 4}, "front": {OnDemand: 2, Spot: 8}, "no-rule": {OnDemand: 1, Spot: 9},
		"stateful": {OnDemand: 2, Spot: 2}, "bare": {Spot: 1}, "job": {OnDemand: 1, Spot: 3},
		"elsewhere": {OnDemand: 5, Spot: 5},
	}))
}

func TestPlacementAnnotationPolicy(t *testing.T) {
	for policy, want := range map[string]map[string]split{
		"Allow":        {"lower": {Spot: 4}, "higher": {OnDemand: 3, Spot: 1}, "anyway": {Spot: 4}},
		"StricterOnly": {"lower": {OnDemand: 2, Spot: 2}, "higher": {OnDemand: 3, Spot: 1}, "anyway": {Spot: 2, Waiting: 2}},
		"Ignore":       {"lower": {OnDemand: 2, Spot: 2}, "higher": {OnDemand: 2, Spot: 2}, "anyway": {Spot: 2, Waiting: 2}},
	} {
		t.Run(policy, func(t *testing.T) {
			lone := live.Spot(4, 10)[3:]
			lone[0].Zone = spotZone
			s := start(t, slices.Concat(live.OnDemand(1, 10), live.Spot(3, 10), lone), set("annotationPolicy", policy), set("minOnDemand", 2), set("exemptions", "Ignore"))
			s.Deploy("lower", 4, live.Annotated(minOnDemand, "0"))
			s.Deploy("higher", 4, live.Annotated(minOnDemand, "3"))
			s.Deploy("anyway", 4, live.Annotated(whenUnsatisfiable, "ScheduleAnyway"), selectZone(spotZone))
			s.Eventually(soon, s.haveSplits(want))
			if n := want["anyway"].Waiting; n > 0 {
				s.Eventually(soon, s.pendingReason("anyway", n, "spot budget used up: 2 of at most 2 replicas"))
				return
			}
			s.Eventually(soon, s.reported(2, "SpotBudgetExceeded", "anyway-"))
			s.Eventually(soon, s.hasMetric(2, "spot_aware_scheduler_placements_total", map[string]string{"reason": "schedule-anyway"}))
		})
	}
}

// priorityClass creates a PriorityClass with this value and returns its name.
func priorityClass(t *testing.T, name string, priority int32) string {
	t.Helper()
	classes := client.SchedulingV1().PriorityClasses()
	class, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}, Value: priority}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return class.Name
}
