package clustertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const (
	// Namespace is the namespace of all objects.
	Namespace = "shop"
	// Profile is the schedulerName of all pods.
	Profile = "spot-aware-scheduler"
)

// Now is the time at which tests read a cluster.
var Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Overrides returns the settings of a rule: pairs of a name and a value.
func Overrides(pairs ...string) decision.Overrides {
	values := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0]] = pair[1]
	}
	overrides, invalid := decision.ParseOverrides(values)
	if len(invalid) > 0 {
		panic(fmt.Sprintf("invalid settings: %v", invalid))
	}
	return overrides
}

// Meta returns the metadata of an object.
func Meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: Namespace, Name: name, UID: UID(name), OwnerReferences: owners,
		CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
	}
}

// UID returns the UID of the object with this name.
func UID(name string) types.UID { return types.UID(name + "-uid") }

// OwnedBy returns the reference of an object to its controller. kind is a kind of Kubernetes, such
// as ReplicaSet, the CloneSet of OpenKruise, or GROUP/VERSION/KIND.
func OwnedBy(kind, name string) metav1.OwnerReference {
	apiVersion := "apps/v1"
	switch i := strings.LastIndex(kind, "/"); {
	case i >= 0:
		apiVersion, kind = kind[:i], kind[i+1:]
	case kind == "CloneSet":
		apiVersion = "apps.kruise.io/v1alpha1"
	case kind == "Job":
		apiVersion = "batch/v1"
	case kind == "ReplicationController":
		apiVersion = "v1"
	}
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: UID(name), Controller: new(true)}
}

// NewNode returns a ready node of a pool, "TYPE/ZONE". It has no capacity label if capacity is
// empty. options are options of a node in the notation.
func NewNode(name, capacity, pool string, options ...string) *v1.Node {
	instanceType, zone, _ := strings.Cut(pool, "/")
	o := words(options)
	o.check(nodeOptions)
	node := &v1.Node{ObjectMeta: Meta(name)}
	node.Namespace = ""
	node.Annotations = map[string]string{}
	node.Labels = map[string]string{v1.LabelHostname: name, v1.LabelInstanceTypeStable: instanceType, v1.LabelTopologyZone: zone}
	if capacity != "" {
		node.Labels[spot.CapacityLabel] = capacity
	}
	node.Status = v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(o.or("cpu", "4")), v1.ResourcePods: resource.MustParse(o.or("pods", "110")),
		},
	}
	if born, given := o.get("born"); given {
		node.CreationTimestamp = ago(born)
	}
	node.Spec.Unschedulable = o.has("cordoned")
	if o.has("notready") {
		node.Status.Conditions[0].Status = v1.ConditionFalse
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(Now.Add(-time.Second))
	}
	if text, given := o.get("taint"); given {
		key, value, _ := strings.Cut(text, "=")
		node.Spec.Taints = []v1.Taint{{Key: key, Value: value, Effect: v1.TaintEffectNoSchedule}}
	}
	if key, given := o.get("without"); given {
		delete(node.Labels, key)
	}
	for word, into := range map[string]map[string]string{"label": node.Labels, "annotation": node.Annotations} {
		if text, given := o.get(word); given {
			key, value, _ := strings.Cut(text, "=")
			into[key] = value
		}
	}
	return node
}

// NewPod returns a pending pod that requests one CPU. Its label "app" is its name without the part
// after the last "-".
func NewPod(name string, owners ...metav1.OwnerReference) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: Meta(name, owners...), Spec: v1.PodSpec{
		SchedulerName: Profile,
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}},
	}}
	app := name
	if i := strings.LastIndex(name, "-"); i >= 0 {
		app = name[:i]
	}
	pod.Labels, pod.Generation = map[string]string{"app": app}, 1
	return pod
}

// Run returns pod after it became ready on a node.
func Run(node string, pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName, pod.Status.Phase = node, v1.PodRunning
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	return pod
}

// Terminate returns pod after its deletion at Now.
func Terminate(pod *v1.Pod) *v1.Pod {
	pod.DeletionTimestamp = &metav1.Time{Time: Now}
	return pod
}

// Release turns pod into a pod that was released from its ReplicaSet at Now, to heal.
func Release(pod *v1.Pod) { ReleaseFor("heal", Now, pod) }

// ReleaseFor turns pod into a pod that was released from its ReplicaSet for a reason at a time. Its
// ReplicaSet has already removed its owner reference.
func ReleaseFor(reason string, at time.Time, pod *v1.Pod) {
	ref := pod.OwnerReferences[0]
	text, err := json.Marshal(snapshot.Release{
		ReplicaSet: ref.Name, ReplicaSetUID: ref.UID, Pod: pod.UID, Reason: reason, At: at,
		Hash: pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
	})
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{spot.ReleasedAnnotation: string(text)}
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = spot.ReleasedHash
	pod.OwnerReferences = nil
}

// NewDeployment returns a Deployment, then a ReplicaSet "<name>-<revision>" for each revision, the
// oldest first. Each has this many replicas. Without revisions there is one, "r".
func NewDeployment(name string, replicas int32, revisions ...string) []runtime.Object {
	d := &appsv1.Deployment{ObjectMeta: Meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
	}}
	if len(revisions) == 0 {
		revisions = []string{"r"}
	}
	objects := []runtime.Object{d}
	for i, revision := range revisions {
		rs := NewReplicaSet(name, revision, replicas)
		rs.Annotations = map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(i + 1)}
		objects = append(objects, rs)
	}
	return objects
}

// NewReplicaSet returns the ReplicaSet of a revision of a Deployment.
func NewReplicaSet(deployment, revision string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": deployment, appsv1.DefaultDeploymentUniqueLabelKey: revision}
	return &appsv1.ReplicaSet{ObjectMeta: Meta(deployment+"-"+revision, OwnedBy("Deployment", deployment)), Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
	}}
}

// AsRollout turns the objects of a Deployment into a Rollout of Argo, which no cache has. Its
// ReplicaSets state its replica count: that of the Deployment, if it is the first object.
func AsRollout(objects []runtime.Object) (rollout []runtime.Object) {
	var desired *int32
	for _, object := range objects {
		switch object := object.(type) {
		case *appsv1.Deployment:
			desired = object.Spec.Replicas
			continue
		case *appsv1.ReplicaSet:
			ref := &object.OwnerReferences[0]
			ref.APIVersion, ref.Kind = "argoproj.io/v1alpha1", "Rollout"
			object.Annotations = map[string]string{
				"rollout.argoproj.io/revision":         object.Annotations["deployment.kubernetes.io/revision"],
				"rollout.argoproj.io/desired-replicas": fmt.Sprint(*cmp.Or(desired, object.Spec.Replicas))}
		}
		rollout = append(rollout, object)
	}
	return rollout
}

// NewStatefulSet returns a StatefulSet.
func NewStatefulSet(name string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: Meta(name), Spec: appsv1.StatefulSetSpec{Replicas: &replicas}}
}

// NewJob returns a Job of this parallelism.
func NewJob(name string, parallelism int32) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: Meta(name), Spec: batchv1.JobSpec{Parallelism: &parallelism}}
}

// NewBudget returns a PodDisruptionBudget for the pods of an app. It has the app's name.
func NewBudget(app string, minAvailable int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: Meta(app), Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, MinAvailable: new(intstr.FromInt32(minAvailable)),
	}}
}
