package answers_test

import (
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const (
	profile   = config.DefaultProfile
	namespace = "shop"
)

// began is the start of every case: the initial time of a testing/synctest bubble.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// objects concatenates objects and lists of objects.
func objects(some ...any) (all []runtime.Object) {
	for _, one := range some {
		switch one := one.(type) {
		case []runtime.Object:
			all = append(all, one...)
		case runtime.Object:
			all = append(all, one)
		default:
			panic(fmt.Sprintf("%T is not an object", one))
		}
	}
	return all
}

// meta returns the metadata of an object that is an hour old.
func meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name + "-uid"), OwnerReferences: owners,
		CreationTimestamp: metav1.NewTime(began.Add(-time.Hour)), Labels: map[string]string{}, Annotations: map[string]string{},
	}
}

func by(kind, name string) metav1.OwnerReference {
	version := map[string]string{
		"Job": "batch/v1", "ReplicationController": "v1", "CloneSet": "apps.kruise.io/v1alpha1", "Rollout": "argoproj.io/v1alpha1", "Pod": "v1",
	}[kind]
	if version == "" {
		version = "apps/v1"
	}
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
}

// annotated sets an annotation of an object.
func annotated[T metav1.Object](object T, key, value string) T {
	object.GetAnnotations()[key] = value
	return object
}

// node returns a ready node of the pool m/a that has room and no capacity label.
func newNode(name string, edits ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{
		ObjectMeta: meta(name),
		Status: v1.NodeStatus{
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourcePods: resource.MustParse("110")},
		},
	}
	n.Namespace = ""
	n.Labels[v1.LabelInstanceTypeStable], n.Labels[v1.LabelTopologyZone] = "m", "a"
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func onDemand(name string, edits ...func(*v1.Node)) *v1.Node {
	n := newNode(name, edits...)
	n.Labels[spot.CapacityLabel] = "on-demand"
	return n
}

func spotNode(name string, edits ...func(*v1.Node)) *v1.Node {
	n := newNode(name, edits...)
	n.Labels[spot.CapacityLabel] = "spot"
	return n
}

func label(key, value string) func(*v1.Node) {
	return func(n *v1.Node) { n.Labels[key] = value }
}

func inZone(zone string) func(*v1.Node) { return label(v1.LabelTopologyZone, zone) }

func noPool(n *v1.Node) { delete(n.Labels, v1.LabelInstanceTypeStable) }

// young makes the node one that was created just now.
func young(n *v1.Node) { n.CreationTimestamp = metav1.NewTime(began) }

func taint(key string, effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: effect}) }
}

// event sets the AKS condition with which the cloud announces an event.
func event(message string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "VMEventScheduled", Status: v1.ConditionTrue, Message: message})
	}
}

// unreachable makes the node not ready for longer than the limit for spot nodes.
func unreachable(n *v1.Node) {
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = v1.ConditionUnknown, metav1.NewTime(began.Add(-time.Minute))
}

func deleted(n *v1.Node) {
	n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: began}, []string{"example.com/held"}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
}

// revision returns a ReplicaSet of a Deployment, named <deployment>-<number>.
func revision(of string, number int, replicas int32) *appsv1.ReplicaSet {
	rs := replicaSet(fmt.Sprintf("%s-%d", of, number), replicas)
	rs.OwnerReferences = []metav1.OwnerReference{by("Deployment", of)}
	return annotated(rs, "deployment.kubernetes.io/revision", fmt.Sprint(number))
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

// web returns the Deployment web, with one revision that has pods on these nodes.
func web(replicas int32, on ...string) []runtime.Object {
	return objects(deployment("web", replicas), revision("web", 1, replicas), pods(by("ReplicaSet", "web-1"), on...))
}

// webWith returns web with an annotation on the Deployment.
func webWith(key, value string, replicas int32, on ...string) []runtime.Object {
	all := web(replicas, on...)
	annotated(all[0].(metav1.Object), key, value)
	return all
}

func statefulSet(name string, replicas int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: meta(name), Spec: appsv1.StatefulSetSpec{Replicas: &replicas}}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func job(name string, parallelism int32, edits ...func(*batchv1.JobSpec)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: meta(name), Spec: batchv1.JobSpec{Parallelism: &parallelism}}
	for _, edit := range edits {
		edit(&j.Spec)
	}
	return j
}

// pod returns a pending pod of the profile.
func pod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: meta(name), Spec: v1.PodSpec{
		SchedulerName: profile,
		Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}},
	}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// podOf returns a pod of an owner. Its name starts with the owner's name.
func podOf(owner metav1.OwnerReference, suffix string, edits ...func(*v1.Pod)) *v1.Pod {
	p := pod(owner.Name+"-"+suffix, edits...)
	p.OwnerReferences = []metav1.OwnerReference{owner}
	return p
}

// pods returns pods of an owner on these nodes.
func pods(owner metav1.OwnerReference, nodes ...string) (all []runtime.Object) {
	for i, name := range nodes {
		all = append(all, podOf(owner, fmt.Sprintf("on%d", i), on(name)))
	}
	return all
}

// next returns the pod of web's first revision that the components must place.
func next(edits ...func(*v1.Pod)) *v1.Pod { return podOf(by("ReplicaSet", "web-1"), "next", edits...) }

func on(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

func withAnnotation(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

func selects(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func phase(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }

func terminating(p *v1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: began.Add(time.Minute)}, ptr.To(int64(60))
}

// released turns a pod of a ReplicaSet into one that was released from it.
func released(p *v1.Pod) *v1.Pod {
	ref := metav1.GetControllerOfNoCopy(p)
	text, err := json.Marshal(snapshot.Release{ReplicaSet: ref.Name, ReplicaSetUID: ref.UID, Pod: p.UID, Hash: "h", Reason: "heal", At: began})
	if err != nil {
		panic(err)
	}
	p.Annotations[spot.ReleasedAnnotation], p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = string(text), spot.ReleasedHash
	p.OwnerReferences = nil
	return p
}
