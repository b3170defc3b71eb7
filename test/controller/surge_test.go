package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestWorkloadChangesDuringSurge: a workload is deleted, scaled to 0 or rolled out while
// one of its pods is released.
func TestWorkloadChangesDuringSurge(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	apps := []string{"deleted", "scaled", "updated"}
	for _, app := range apps {
		// A pod leaves when its replacement has been available for this time, so the surge lasts.
		s.Deploy(app, 1, live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
	}
	for _, app := range apps {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: 1}))
		s.Eventually(soon+10*time.Second, s.complete(app, 1))
	}
	s.AddNodes(live.OnDemand(1, 10)...)
	s.StartController(interruptionsOnly())
	s.notice("spot-1", 5*time.Minute)
	for _, app := range apps {
		s.Eventually(soon, s.released(app, 1))
	}

	background := metav1.DeletePropagationBackground
	s.Must(client.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "deleted", metav1.DeleteOptions{PropagationPolicy: &background}))
	s.Scale("scaled", 0)
	s.SetImage("updated", "app:2")
	none := func() error {
		for _, app := range []string{"deleted", "scaled"} {
			pods, err := client.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{LabelSelector: "app=" + app})
			if err != nil {
				return err
			}
			if len(pods.Items) > 0 {
				return fmt.Errorf("%d pods of %s are left", len(pods.Items), app)
			}
		}
		return nil
	}
	s.Eventually(soon, none)
	s.Eventually(2*soon, s.complete("updated", 1))
	s.Eventually(soon, s.HasReadySplit("updated", split{OnDemand: 1}))
	s.Eventually(soon, s.noPodReleased)
	s.RequireThroughout(5*time.Second, none)
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{LabelSelector: "app=updated"})
	s.Must(err)
	if image := pods[0].Spec.Containers[0].Image; len(pods) != 1 || image != "registry.invalid/app:2" {
		t.Errorf("updated has %d pods, of image %s", len(pods), image)
	}
}

// TestMoveMethods: the pods of each kind of workload are moved by the expected method, and no
// workload is changed.
func TestMoveMethods(t *testing.T) {
	s := start(t, live.Spot(1, 20)...)
	onSpot := live.Annotated(minOnDemand, "0")
	methods := map[string]string{"plain": "surge", "scaled-by-hpa": "surge", "recreate": "evict", "no-surge": "evict", "rolling": "evict", "refused": "evict", "host-port": "evict", "apart": "evict", "adoptable": "evict"}
	s.Deploy("plain", 1, onSpot)
	s.Deploy("scaled-by-hpa", 2, onSpot)
	s.Deploy("recreate", 1, onSpot, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	s.Deploy("no-surge", 2, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		}}
	})
	s.Deploy("rolling", 2, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}}
	})
	s.Deploy("refused", 1, onSpot, live.Annotated(surgeAnnotation, "false"))
	s.Deploy("host-port", 1, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	})
	s.Deploy("apart", 1, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "apart"}},
			}},
		}}
	})
	s.Deploy("adoptable", 1, onSpot)
	template := live.PodTemplate("adoptable")
	_, err := client.CoreV1().ReplicationControllers(s.Namespace).Create(s.Ctx, &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "adopter"},
		Spec:       v1.ReplicationControllerSpec{Replicas: ptr.To[int32](0), Selector: template.Labels, Template: &template},
	}, metav1.CreateOptions{}) // it would adopt and delete a released pod
	s.Must(err)
	want := map[string]int{}
	for app := range methods {
		want[app] = int(*s.Deployment(app).Spec.Replicas)
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: want[app]}))
	}
	// The autoscaler gets no metrics here, like in a cluster with broken metrics. It must not
	// change the replica count.
	s.autoscale("scaled-by-hpa")
	// A rollout that cannot progress: its new pods request more CPU than any node has.
	s.PatchDeployment("rolling", `{"spec":{"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"999"}}}]}}}}`)
	s.Eventually(soon, func() error {
		if d := s.Deployment("rolling"); d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 1 {
			return fmt.Errorf("the rollout has not begun: %+v", d.Status)
		}
		return nil
	})
	// The pod with anti-affinity can only move to the new zone.
	s.AddNodes(live.OnDemand(2, 20)...)
	s.StartController(interruptionsOnly())

	s.notice("spot-1", 2*time.Minute)
	s.Eventually(90*time.Second, s.empty("spot-1"))
	s.Eventually(soon, s.haveAllBeenRemoved(want)) // the watch may lag behind the list
	for app, method := range methods {
		left := s.Seen.Removed(app)
		if len(left) != want[app] {
			t.Errorf("%d pods of %s left, want %d", len(left), app, want[app])
		}
		for _, record := range left {
			if surged := !record.Released().IsZero(); surged != (method == "surge") || !record.Evicted {
				t.Errorf("%s: released: %t, evicted: %t, want the method %s", record.Name, surged, record.Evicted, method)
			}
		}
		if app == "rolling" {
			continue
		}
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: want[app]}))
		s.Eventually(soon, s.complete(app, want[app]))
	}
	if replicas := *s.Deployment("rolling").Spec.Replicas; replicas != 2 {
		t.Errorf("rolling has %d desired replicas now", replicas)
	}
	s.Eventually(soon, s.noPodReleased)
}

// TestSurgeWithoutReplacementIsUndone: a quota prevents the replacement.
func TestSurgeWithoutReplacementIsUndone(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.Deploy("app", 2, live.Annotated(fallbackAfter, "3s"))
	s.Eventually(soon, s.HasReadySplit("app", split{Spot: 2}))
	s.serve("app", 2)
	_, err := client.CoreV1().ResourceQuotas(s.Namespace).Create(s.Ctx, &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{v1.ResourcePods: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(soon, func() error {
		quota, err := client.CoreV1().ResourceQuotas(s.Namespace).Get(s.Ctx, "full", metav1.GetOptions{})
		if err == nil && quota.Status.Used.Pods().Value() != 2 {
			err = fmt.Errorf("the quota has no status yet: %v", quota.Status)
		}
		return err
	})
	s.AddNodes(live.OnDemand(1, 5)...)
	with := onlyReason("heal")
	with["migration.surgeTimeout"] = "5s"
	s.StartController(with)
	s.Eventually(soon, s.released("app", 1))
	s.Eventually(soon, s.HasEvent("app-", "RestoredToReplicaSet", ""))
	s.Eventually(soon, s.noPodReleased)
	s.Eventually(soon, s.complete("app", 2))
	s.Must(s.HasReadySplit("app", split{Spot: 2})())
	s.Eventually(soon, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_migrations_total", map[string]string{"method": "surge", "reason": "heal", "outcome": "restored"}))
	if left := s.Seen.Removed(""); len(left) > 0 {
		t.Errorf("pods left: %v", left)
	}
}
