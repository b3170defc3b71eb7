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
	s := start(t, slices.Concat(onDemand(3, 30), spotNodes(3, 30)), set("rules", rules(
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
	elsewhere := *s
	elsewhere.namespace = other.Name
	t.Cleanup(func() {
		if err := elsewhere.deleteWorkloads(context.Background()); err != nil {
			t.Error(err)
		}
		if err := client.CoreV1().Namespaces().Delete(context.Background(), other.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	front := func(d *appsv1.Deployment) { d.Spec.Template.Labels["tier"] = "front" }
	s.deploy("guaranteed", 10, front, func(d *appsv1.Deployment) {
		both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Mi")}
		d.Spec.Template.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: both, Limits: both}
	})
	s.deploy("critical", 10, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = critical })
	s.deploy("important", 10, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = important })
	s.deploy("important-annotated", 10, annotated(minOnDemand, "6"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = important })
	elsewhere.deploy("elsewhere", 10, front)
	s.deploy("front", 10, front, annotated(minOnDemand, "6"), podAnnotated(minOnDemand, "7"))
	s.deploy("no-rule", 10)
	s.statefulSet("stateful", 4, func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	s.barePod("bare")
	s.job("job", 4, 4)

	s.eventually(soon, s.haveSplits(map[string]split{
		"guaranteed": {onDemand: 10}, "critical": {onDemand: 4, spot: 6}, "important": {onDemand: 3, spot: 7},
		"important-annotated": {onDemand: 6, spot: 4}, "front": {onDemand: 2, spot: 8}, "no-rule": {onDemand: 1, spot: 9},
		"stateful": {onDemand: 2, spot: 2}, "bare": {spot: 1}, "job": {onDemand: 1, spot: 3},
	}))
	s.eventually(soon, elsewhere.haveSplits(map[string]split{"elsewhere": {onDemand: 5, spot: 5}}))
}

func TestPlacementAnnotationPolicy(t *testing.T) {
	for policy, want := range map[string]map[string]split{
		"Allow":        {"lower": {0, 4, 0}, "higher": {3, 1, 0}, "anyway": {0, 4, 0}},
		"StricterOnly": {"lower": {2, 2, 0}, "higher": {3, 1, 0}, "anyway": {0, 2, 2}},
		"Ignore":       {"lower": {2, 2, 0}, "higher": {2, 2, 0}, "anyway": {0, 2, 2}},
	} {
		t.Run(policy, func(t *testing.T) {
			lone := spotNodes(4, 10)[3:]
			lone[0].Zone = spotZone
			s := start(t, slices.Concat(onDemand(1, 10), spotNodes(3, 10), lone), set("annotationPolicy", policy), set("minOnDemand", 2), set("exemptions", "Ignore"))
			s.deploy("lower", 4, annotated(minOnDemand, "0"))
			s.deploy("higher", 4, annotated(minOnDemand, "3"))
			s.deploy("anyway", 4, annotated(whenUnsatisfiable, "ScheduleAnyway"), selectZone(spotZone))
			s.eventually(soon, s.haveSplits(want))
			if n := want["anyway"].waiting; n > 0 {
				s.eventually(soon, s.pendingReason("anyway", n, "spot budget used up: 2 of at most 2 replicas"))
				return
			}
			s.eventually(soon, s.reported(2, "SpotBudgetExceeded", "anyway-"))
			s.eventually(soon, s.hasMetric(2, "spot_aware_scheduler_placements_total", map[string]string{"reason": "schedule-anyway"}))
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
