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
		s.deploy(app, 1, annotated(minOnDemand, "0"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
	}
	for _, app := range apps {
		s.eventually(soon, s.hasSplit(app, split{Spot: 1}))
		s.eventually(soon+10*time.Second, s.complete(app, 1))
	}
	s.addNodes(live.OnDemand(1, 10)...)
	s.startController(interruptionsOnly())
	s.notice("spot-1", 5*time.Minute)
	for _, app := range apps {
		s.eventually(soon, s.released(app, 1))
	}

	background := metav1.DeletePropagationBackground
	s.must(client.AppsV1().Deployments(s.namespace).Delete(s.ctx, "deleted", metav1.DeleteOptions{PropagationPolicy: &background}))
	s.scale("scaled", 0)
	s.update("updated", "app:2")
	none := func() error {
		for _, app := range []string{"deleted", "scaled"} {
			pods, err := client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + app})
			if err != nil {
				return err
			}
			if len(pods.Items) > 0 {
				return fmt.Errorf("%d pods of %s are left", len(pods.Items), app)
			}
		}
		return nil
	}
	s.eventually(soon, none)
	s.eventually(2*soon, s.complete("updated", 1))
	s.eventually(soon, s.hasSplit("updated", split{OnDemand: 1}))
	s.eventually(soon, s.noPodReleased)
	s.requireThroughout(5*time.Second, none)
	pods, err := live.Pods(s.ctx, client, s.namespace, metav1.ListOptions{LabelSelector: "app=updated"})
	s.must(err)
	if image := pods[0].Spec.Containers[0].Image; len(pods) != 1 || image != "registry.invalid/app:2" {
		t.Errorf("updated has %d pods, of image %s", len(pods), image)
	}
}

// TestMoveMethods: the pods of each kind of workload are moved by the expected method, and no
// workload is changed.
func TestMoveMethods(t *testing.T) {
	s := start(t, live.Spot(1, 20)...)
	onSpot := annotated(minOnDemand, "0")
	methods := map[string]string{"plain": "surge", "scaled-by-hpa": "surge", "recreate": "evict", "no-surge": "evict", "rolling": "evict", "refused": "evict", "host-port": "evict", "apart": "evict", "adoptable": "evict"}
	s.deploy("plain", 1, onSpot)
	s.deploy("scaled-by-hpa", 2, onSpot)
	s.deploy("recreate", 1, onSpot, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	s.deploy("no-surge", 2, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		}}
	})
	s.deploy("rolling", 2, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}}
	})
	s.deploy("refused", 1, onSpot, annotated(surgeAnnotation, "false"))
	s.deploy("host-port", 1, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	})
	s.deploy("apart", 1, onSpot, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "apart"}},
			}},
		}}
	})
	s.deploy("adoptable", 1, onSpot)
	template := live.PodTemplate("adoptable")
	_, err := client.CoreV1().ReplicationControllers(s.namespace).Create(s.ctx, &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "adopter"},
		Spec:       v1.ReplicationControllerSpec{Replicas: ptr.To[int32](0), Selector: template.Labels, Template: &template},
	}, metav1.CreateOptions{}) // it would adopt and delete a released pod
	s.must(err)
	want := map[string]int{}
	for app := range methods {
		want[app] = int(*s.deployment(app).Spec.Replicas)
		s.eventually(soon, s.hasSplit(app, split{Spot: want[app]}))
	}
	// The autoscaler gets no metrics here, like in a cluster with broken metrics. It must not
	// change the replica count.
	s.autoscale("scaled-by-hpa")
	// A rollout that cannot progress: its new pods request more CPU than any node has.
	s.patch("rolling", `{"spec":{"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"999"}}}]}}}}`)
	s.eventually(soon, func() error {
		if d := s.deployment("rolling"); d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 1 {
			return fmt.Errorf("the rollout has not begun: %+v", d.Status)
		}
		return nil
	})
	// The pod with anti-affinity can only move to the new zone.
	s.addNodes(live.OnDemand(2, 20)...)
	s.startController(interruptionsOnly())

	s.notice("spot-1", 2*time.Minute)
	s.eventually(90*time.Second, s.empty("spot-1"))
	s.eventually(soon, s.haveAllBeenRemoved(want)) // the watch may lag behind the list
	for app, method := range methods {
		left := s.seen.removed(app)
		if len(left) != want[app] {
			t.Errorf("%d pods of %s left, want %d", len(left), app, want[app])
		}
		for _, record := range left {
			if surged := !record.released.IsZero(); surged != (method == "surge") || !record.evicted {
				t.Errorf("%s: released: %t, evicted: %t, want the method %s", record.name, surged, record.evicted, method)
			}
		}
		if app == "rolling" {
			continue
		}
		s.eventually(soon, s.hasSplit(app, split{OnDemand: want[app]}))
		s.eventually(soon, s.complete(app, want[app]))
	}
	if replicas := *s.deployment("rolling").Spec.Replicas; replicas != 2 {
		t.Errorf("rolling has %d desired replicas now", replicas)
	}
	s.eventually(soon, s.noPodReleased)
}

// TestSurgeWithoutReplacementIsUndone: a quota prevents the replacement.
func TestSurgeWithoutReplacementIsUndone(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.deploy("app", 2, annotated(fallbackAfter, "3s"))
	s.eventually(soon, s.hasSplit("app", split{Spot: 2}))
	s.serve("app", 2)
	_, err := client.CoreV1().ResourceQuotas(s.namespace).Create(s.ctx, &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{v1.ResourcePods: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(soon, func() error {
		quota, err := client.CoreV1().ResourceQuotas(s.namespace).Get(s.ctx, "full", metav1.GetOptions{})
		if err == nil && quota.Status.Used.Pods().Value() != 2 {
			err = fmt.Errorf("the quota has no status yet: %v", quota.Status)
		}
		return err
	})
	s.addNodes(live.OnDemand(1, 5)...)
	with := onlyReason("heal")
	with["migration.surgeTimeout"] = "5s"
	s.startController(with)
	s.eventually(soon, s.released("app", 1))
	s.eventually(soon, s.hasEvent("app-", "RestoredToReplicaSet", ""))
	s.eventually(soon, s.noPodReleased)
	s.eventually(soon, s.complete("app", 2))
	s.must(s.hasSplit("app", split{Spot: 2})())
	s.eventually(soon, s.hasMetric(1, "spot_aware_scheduler_migrations_total", map[string]string{"method": "surge", "reason": "heal", "outcome": "restored"}))
	if left := s.seen.removed(""); len(left) > 0 {
		t.Errorf("pods left: %v", left)
	}
}
