package transform

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
)

var created = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bulky returns the metadata of an owner with all fields that real owners have.
func bulky(name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web-uid", Controller: new(true)}}
	m.Generation, m.ResourceVersion = 7, "42"
	m.CreationTimestamp, m.DeletionTimestamp = metav1.NewTime(created), new(metav1.NewTime(created.Add(time.Second)))
	m.Labels = map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "5d9f8c7b6"}
	m.Annotations = map[string]string{
		"spot-aware-scheduler.io/min-on-demand": "2", "spot-aware-scheduler.io/surge": "false", "deployment.kubernetes.io/revision": "12",
		"kubectl.kubernetes.io/last-applied-configuration": "{...}", "meta.helm.sh/release-name": "web",
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1("{}")}}
	return m
}

// slim returns the trimmed form of bulky.
func slim(name string) metav1.ObjectMeta {
	m := bulky(name)
	m.Labels, m.ManagedFields = nil, nil
	delete(m.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	delete(m.Annotations, "meta.helm.sh/release-name")
	return m
}

func TestTrim(t *testing.T) {
	var (
		template = v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "web", Image: "web", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}}}},
				InitContainers: []v1.Container{{Name: "init"}}}}
		// The API server sets missing requests to the limits when it creates a pod.
		needs = v1.PodTemplateSpec{Spec: v1.PodSpec{NodeName: "n", InitContainers: []v1.Container{{}},
			Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("2Gi")}}}}}}
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		surge    = intstr.FromString("25%")
		strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge}}
		failures = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore}}}
		managed  = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		images   = []v1.ContainerImage{{Names: []string{"web"}, SizeBytes: 1}}
	)
	cases := map[string]struct{ object, want any }{
		"Lease": {
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n", UID: "u", ResourceVersion: "42", ManagedFields: managed},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n"), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NewMicroTime(created))}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n", ResourceVersion: "42"},
				Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(created))}},
		},
		"ReplicaSet": {
			&appsv1.ReplicaSet{ObjectMeta: bulky("web-1"),
				Spec:   appsv1.ReplicaSetSpec{Replicas: new(int32(3)), MinReadySeconds: 5, Selector: selector, Template: template},
				Status: appsv1.ReplicaSetStatus{Replicas: 3, ObservedGeneration: 7, Conditions: []appsv1.ReplicaSetCondition{{Message: "quota"}}}},
			&appsv1.ReplicaSet{ObjectMeta: slim("web-1"),
				Spec:   appsv1.ReplicaSetSpec{Replicas: new(int32(3)), MinReadySeconds: 5, Selector: selector, Template: needs},
				Status: appsv1.ReplicaSetStatus{Replicas: 3, ObservedGeneration: 7}},
		},
		"ReplicaSet without pods": {
			&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Template: template}},
			&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0))}},
		},
		"Deployment": {
			&appsv1.Deployment{ObjectMeta: bulky("web"),
				Spec:   appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Strategy: strategy, Paused: true, Template: template},
				Status: appsv1.DeploymentStatus{ObservedGeneration: 7, UpdatedReplicas: 2, Conditions: []appsv1.DeploymentCondition{{Message: "progressing"}}}},
			&appsv1.Deployment{ObjectMeta: slim("web"),
				Spec:   appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Strategy: strategy, Paused: true},
				Status: appsv1.DeploymentStatus{ObservedGeneration: 7, UpdatedReplicas: 2}},
		},
		"DaemonSet": {
			&appsv1.DaemonSet{ObjectMeta: bulky("agent"),
				Spec:   appsv1.DaemonSetSpec{Selector: selector, Template: template, MinReadySeconds: 5, RevisionHistoryLimit: new(int32(3))},
				Status: appsv1.DaemonSetStatus{NumberReady: 3, Conditions: make([]appsv1.DaemonSetCondition, 1)}},
			&appsv1.DaemonSet{ObjectMeta: slim("agent"), Spec: appsv1.DaemonSetSpec{Selector: selector}},
		},
		"StatefulSet": {
			&appsv1.StatefulSet{ObjectMeta: bulky("db"),
				Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector, PodManagementPolicy: appsv1.ParallelPodManagement,
					Ordinals: &appsv1.StatefulSetOrdinals{Start: 2}, Template: template, VolumeClaimTemplates: make([]v1.PersistentVolumeClaim, 1)},
				Status: appsv1.StatefulSetStatus{ObservedGeneration: 7, CurrentRevision: "a", UpdateRevision: "b", Conditions: make([]appsv1.StatefulSetCondition, 1)}},
			&appsv1.StatefulSet{ObjectMeta: slim("db"),
				Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector, PodManagementPolicy: appsv1.ParallelPodManagement,
					Ordinals: &appsv1.StatefulSetOrdinals{Start: 2}, Template: needs},
				Status: appsv1.StatefulSetStatus{ObservedGeneration: 7, CurrentRevision: "a", UpdateRevision: "b"}},
		},
		"ReplicationController": {
			&v1.ReplicationController{ObjectMeta: bulky("rc"),
				Spec:   v1.ReplicationControllerSpec{Replicas: new(int32(3)), Selector: map[string]string{"app": "web"}, Template: &template},
				Status: v1.ReplicationControllerStatus{Replicas: 3, Conditions: make([]v1.ReplicationControllerCondition, 1)}},
			&v1.ReplicationController{ObjectMeta: slim("rc"),
				Spec:   v1.ReplicationControllerSpec{Replicas: new(int32(3)), Selector: map[string]string{"app": "web"}, Template: &needs},
				Status: v1.ReplicationControllerStatus{Replicas: 3}},
		},
		"Job": {
			&batchv1.Job{ObjectMeta: bulky("job"),
				Spec: batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(9)), BackoffLimit: new(int32(0)), BackoffLimitPerIndex: new(int32(1)),
					PodFailurePolicy: failures, Selector: selector, Template: template},
				Status: batchv1.JobStatus{Active: 1, Succeeded: 2, Conditions: make([]batchv1.JobCondition, 1), UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}},
			&batchv1.Job{ObjectMeta: slim("job"),
				Spec: batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(9)), BackoffLimit: new(int32(0)), BackoffLimitPerIndex: new(int32(1)),
					PodFailurePolicy: failures, Selector: selector, Template: needs},
				Status: batchv1.JobStatus{Active: 1, Succeeded: 2}},
		},
		"no annotation of the project": {
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"meta.helm.sh/release-name": "web"}}},
			&appsv1.ReplicaSet{},
		},
		// ImageLocality reads the images of nodes. The policy reads their labels and annotations.
		"Node": {
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, ManagedFields: managed}, Status: v1.NodeStatus{Images: images}},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}, Status: v1.NodeStatus{Images: images}},
		},
		"Pod":           {&v1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: managed}, Spec: template.Spec}, &v1.Pod{Spec: template.Spec}},
		"a deletion":    {cache.DeletedFinalStateUnknown{Key: "shop/web"}, cache.DeletedFinalStateUnknown{Key: "shop/web"}},
		"not an object": {"text", "text"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			object, _ := test.object.(kruntime.Object)
			var before kruntime.Object
			if object != nil {
				before = object.DeepCopyObject()
			}
			got, err := Trim(test.object)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("Trim (-want +got): %v\n%s", err, diff)
			}
			if again, err := Trim(got); !cmp.Equal(got, again) || err != nil {
				t.Errorf("second call (-first +second): %v\n%s", err, cmp.Diff(got, again))
			}
			if isOwner := slices.Contains([]string{"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "ReplicationController", "Job"}, name); isOwner && !cmp.Equal(before, object) {
				t.Errorf("the argument has changed (-before +after):\n%s", cmp.Diff(before, object))
			}
		})
	}
}

// The memory of a ReplicaSet of a past revision in an informer's cache. For an ordinary service, it
// was 11.8 KiB without trimming.
func TestMemoryOfReplicaSets(t *testing.T) {
	const n, atMost = 2_000, 3.0
	data, err := ordinaryReplicaSet().Marshal() // protobuf, as an informer receives it
	if err != nil {
		t.Fatal(err)
	}
	kib := func(transform cache.TransformFunc) float64 {
		return memoryOf[appsv1.ReplicaSet](t, n, data, transform) / 1024
	}
	whole, trimmed := kib(func(obj any) (any, error) { return obj, nil }), kib(Trim)
	t.Logf("%.1f KiB whole, %.1f KiB trimmed", whole, trimmed)
	if trimmed > atMost || whole < 2*trimmed {
		t.Errorf("a ReplicaSet uses %.1f KiB, trimmed %.1f KiB; want at most %.1f KiB, and less than half", whole, trimmed, atMost)
	}
}

// memoryOf returns the bytes of each of n objects that are decoded from data and transformed.
func memoryOf[T any, P interface {
	*T
	Unmarshal(data []byte) error
}](t *testing.T, n int, data []byte, transform cache.TransformFunc) float64 {
	t.Helper()
	all := make([]any, n)
	before := heap()
	for i := range all {
		object := P(new(T))
		err := object.Unmarshal(data)
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = transform(object); err != nil {
			t.Fatal(err)
		}
	}
	grown := heap() - before
	runtime.KeepAlive(all)
	return float64(grown) / float64(n)
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func ordinaryReplicaSet() *appsv1.ReplicaSet {
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}, PeriodSeconds: 10}
	container := v1.Container{Name: "app", Image: "registry.example.com/team/service:1.2.3-abcdef", LivenessProbe: probe, ReadinessProbe: probe}
	for range 15 {
		container.Env = append(container.Env, v1.EnvVar{Name: "SOME_SETTING", Value: "a-value-of-it"})
	}
	rs := &appsv1.ReplicaSet{ObjectMeta: bulky("service-5d9f8c7b6"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "service", "pod-template-hash": "5d9f8c7b6"}},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{container}}}}}
	rs.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(strings.Repeat(" ", 3_000))
	return rs
}
