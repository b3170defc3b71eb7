package demo

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

const (
	namespace     = "shop"
	workloadLabel = "app.kubernetes.io/name"
)

type kind string

const (
	deployment  kind = "Deployment"
	statefulSet kind = "StatefulSet"
	job         kind = "Job"
)

// workload is a workload of the demo.
type workload struct {
	name        string
	kind        kind
	replicas    int
	cpu, memory string
	// minOnDemand is the value of the annotation min-on-demand. Empty: the scheduler's default, 1
	// (for a Job 0).
	minOnDemand string
	// floor is the number of replicas that must survive the loss of all spot nodes, by
	// minOnDemand. The demo fails if the scheduler violates it.
	floor int
	// minAvailable belongs to the PodDisruptionBudget of the workload. 0: it has none.
	minAvailable int
}

// workloads are the workloads of a typical web shop.
var workloads = []workload{
	{name: "storefront", kind: deployment, replicas: 10, cpu: "500m", memory: "1Gi", minOnDemand: "30%", floor: 3, minAvailable: 5},
	{name: "search", kind: deployment, replicas: 10, cpu: "800m", memory: "2Gi", floor: 1},
	{name: "recommendations", kind: deployment, replicas: 6, cpu: "750m", memory: "2Gi", minOnDemand: "50%", floor: 3},
	{name: "checkout", kind: deployment, replicas: 3, cpu: "500m", memory: "1Gi", floor: 1, minAvailable: 2},
	{name: "payments", kind: deployment, replicas: 3, cpu: "500m", memory: "1Gi", minOnDemand: "2", floor: 2, minAvailable: 2},
	{name: "cart", kind: deployment, replicas: 3, cpu: "400m", memory: "1Gi", floor: 1, minAvailable: 1},
	{name: "login", kind: deployment, replicas: 2, cpu: "300m", memory: "512Mi", floor: 1},
	{name: "admin", kind: deployment, replicas: 1, cpu: "250m", memory: "512Mi", floor: 1},
	{name: "billing", kind: deployment, replicas: 1, cpu: "500m", memory: "1Gi", floor: 1},
	{name: "mailer", kind: deployment, replicas: 1, cpu: "250m", memory: "512Mi", floor: 1},
	{name: "kafka", kind: statefulSet, replicas: 5, cpu: "1", memory: "4Gi", minOnDemand: "2", floor: 2, minAvailable: 3},
	{name: "redis", kind: statefulSet, replicas: 3, cpu: "500m", memory: "2Gi", floor: 1},
	{name: "nightly-report", kind: job, replicas: 6, cpu: "1", memory: "2Gi", floor: 0},
}

// placement contains the differences between the acts: how a workload prefers spot, and its other
// constraints.
type placement struct {
	schedulerName string
	affinity      *corev1.Affinity
	// zone is the only zone in which the pods may run. Empty: any zone.
	zone string
	// fallbackAfter is the value of the annotation of that name. Empty: the scheduler's default.
	fallbackAfter string
}

// preferSpot is the usual way to prefer spot without a custom scheduler: the strongest preference
// that Kubernetes has.
var preferSpot = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
	PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: lab.CapacityLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{lab.Spot},
		}}},
	}},
}}

// requests returns the resource requests of one replica.
func (w workload) requests() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(w.cpu),
		corev1.ResourceMemory: resource.MustParse(w.memory),
	}
}

// objects returns the objects to create for the workload.
func (w workload) objects(p placement) []client.Object {
	labels := map[string]string{workloadLabel: w.name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	meta := metav1.ObjectMeta{Name: w.name, Namespace: namespace, Labels: labels, Annotations: map[string]string{}}
	if w.minOnDemand != "" {
		meta.Annotations[spot.MinOnDemandAnnotation] = w.minOnDemand
	}
	if p.fallbackAfter != "" {
		meta.Annotations[spot.FallbackAfterAnnotation] = p.fallbackAfter
	}
	replicas := ptr.To(int32(w.replicas))
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: p.schedulerName,
			Affinity:      p.affinity,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/shop/" + w.name + ":1",
				Resources: corev1.ResourceRequirements{Requests: w.requests()},
			}},
		},
	}
	if p.zone != "" {
		template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: p.zone}
	}

	var owner client.Object
	switch w.kind {
	case deployment:
		owner = &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: replicas, Selector: selector, Template: template,
		}}
	case statefulSet:
		owner = &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Replicas: replicas, Selector: selector, Template: template, PodManagementPolicy: appsv1.ParallelPodManagement,
		}}
	case job:
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		template.Annotations = map[string]string{lab.RunTimeAnnotation: "1h"}
		owner = &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			Parallelism: replicas, Completions: replicas, Template: template,
			BackoffLimit: ptr.To[int32](100), // the Job does not fail because of pods lost with their nodes
		}}
	}
	objects := []client.Object{owner}
	if w.minAvailable > 0 {
		objects = append(objects, &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(w.minAvailable)), Selector: selector,
		}})
	}
	return objects
}
