package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// history simulates watches, with its own clock and etcd.
type history struct {
	t        *testing.T
	core     *core
	now      time.Time
	revision int
	objects  map[types.UID]metav1.Object
}

var dawn = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

func newHistory(t *testing.T, args string) *history {
	t.Helper()
	return &history{t: t, core: newCore(SchedulerName, policyOf(t, args), dawn), now: dawn, revision: 1, objects: map[types.UID]metav1.Object{}}
}

// policyOf returns the policy in args. fallbackAfter is never unless args contains it.
func policyOf(t *testing.T, args string) *Policy {
	t.Helper()
	policy, err := PolicyFromArgs([]byte(args))
	must(t, err)
	if !strings.Contains(args, "fallbackAfter") {
		policy.defaults.fallbackAfter = never
	}
	return policy
}

// wait advances the time in the steps of the live auditor.
func (h *history) wait(d time.Duration) *history {
	for end := h.now.Add(d); h.now.Before(end); {
		h.now = h.now.Add(min(tickEvery, end.Sub(h.now)))
		h.core.advance(h.now)
	}
	return h
}

// write stores an object and delivers it at once.
func (h *history) write(object metav1.Object) *history {
	h.deliver(changed, h.store(object))
	return h
}

// store gives an object the next revision, like etcd, and returns the object that a watch
// delivers.
func (h *history) store(object metav1.Object) metav1.Object {
	h.revision++
	object.SetResourceVersion(strconv.Itoa(h.revision))
	h.objects[object.GetUID()] = object
	return object.(runtime.Object).DeepCopyObject().(metav1.Object)
}

func (h *history) deliver(how change, object metav1.Object) { h.core.observe(h.now, how, object) }

func (h *history) remove(object metav1.Object) *history {
	h.deliver(deleted, h.store(object))
	delete(h.objects, object.GetUID())
	return h
}

// edit changes the stored object with a name.
func edit[T metav1.Object](h *history, name string, change func(T)) *history {
	h.t.Helper()
	object := get[T](h, name)
	change(object)
	return h.write(object)
}

func get[T metav1.Object](h *history, name string) T {
	h.t.Helper()
	for _, object := range h.objects {
		if typed, ok := object.(T); ok && object.GetName() == name {
			return typed
		}
	}
	h.t.Fatalf("no object of that type is named %s", name)
	panic("unreachable")
}

func (h *history) node(name string, labels map[string]string, edits ...func(*corev1.Node)) *history {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: labels},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10"),
		}},
	}
	for _, edit := range edits {
		edit(n)
	}
	return h.write(n)
}

func (h *history) spot(names ...string) *history {
	for _, name := range names {
		h.node(name, map[string]string{ownLabel: "spot"})
	}
	return h
}

func (h *history) onDemand(names ...string) *history {
	for _, name := range names {
		h.node(name, map[string]string{ownLabel: "on-demand"})
	}
	return h
}

// pool creates a spot node of an instance type in zone a.
func (h *history) pool(name, instance string) *history {
	return h.node(name, map[string]string{ownLabel: "spot", corev1.LabelInstanceTypeStable: instance, corev1.LabelTopologyZone: "a"})
}

// deployment creates a Deployment and its first ReplicaSet, with the suffix -1.
func (h *history) deployment(name string, replicas int32, annotations map[string]string) *history {
	h.write(&appsv1.Deployment{ObjectMeta: meta(name, "Deployment", nil, annotations), Spec: appsv1.DeploymentSpec{Replicas: &replicas}})
	return h.revisionOf(name, 1, replicas)
}

// revisionOf creates a ReplicaSet of a Deployment.
func (h *history) revisionOf(deployment string, n int, replicas int32) *history {
	name := fmt.Sprintf("%s-%d", deployment, n)
	m := meta(name, "ReplicaSet", owned("apps/v1", "Deployment", deployment), map[string]string{"deployment.kubernetes.io/revision": strconv.Itoa(n)})
	return h.write(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}})
}

// argoRevision creates a ReplicaSet as Argo Rollouts does for a Rollout with that replica count.
func (h *history) argoRevision(rollout string, n int, replicas int32) *history {
	m := meta(fmt.Sprintf("%s-%d", rollout, n), "ReplicaSet", owned("argoproj.io/v1alpha1", "Rollout", rollout), map[string]string{
		"rollout.argoproj.io/revision": strconv.Itoa(n), "rollout.argoproj.io/desired-replicas": strconv.Itoa(int(replicas)),
	})
	return h.write(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}})
}

func (h *history) scale(deployment string, replicas int32) *history {
	return edit(h, deployment, func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
}

func meta(name, kind string, owners []metav1.OwnerReference, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(kind + "-" + name), OwnerReferences: owners, Annotations: annotations}
}

func owned(version, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: ptr.To(true)}}
}

// pods creates unbound pods of an owner, with a request of one CPU each. The pods have no owner
// if it is "".
func (h *history) pods(kind, owner string, names ...string) *history {
	versions := map[string]string{"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "ReplicationController": "v1"}
	for _, name := range names {
		var owners []metav1.OwnerReference
		if owner != "" {
			version, known := versions[kind]
			if !known {
				version = "example.com/v1"
			}
			owners = owned(version, kind, owner)
		}
		h.write(&corev1.Pod{
			ObjectMeta: meta(name, "Pod", owners, nil),
			Spec: corev1.PodSpec{SchedulerName: SchedulerName, Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}}},
		})
	}
	return h
}

func (h *history) bind(node string, names ...string) *history {
	for _, name := range names {
		edit(h, name, func(p *corev1.Pod) { bindTo(p, node) })
	}
	return h
}

func bindTo(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	setScheduled(p, corev1.ConditionTrue, "")
}

// refuse sets the condition with which the scheduler reports unschedulable pods.
func (h *history) refuse(names ...string) *history {
	for _, name := range names {
		edit(h, name, func(p *corev1.Pod) { setScheduled(p, corev1.ConditionFalse, corev1.PodReasonUnschedulable) })
	}
	return h
}

func setScheduled(p *corev1.Pod, status corev1.ConditionStatus, reason string) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: status, Reason: reason})
}

// terminate sets a pod's deletionTimestamp.
func (h *history) terminate(name string) *history {
	return edit(h, name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: h.now} })
}

func (h *history) statefulSet(name string, replicas, start int32, annotations map[string]string) *history {
	return h.write(&appsv1.StatefulSet{ObjectMeta: meta(name, "StatefulSet", nil, annotations),
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Ordinals: &appsv1.StatefulSetOrdinals{Start: start}}})
}

// group creates the StatefulSet of leaders, and a StatefulSet of two workers that one leader
// controls.
func (h *history) group(name string, groups int32, leader int) *history {
	workers, leaderName := int32(2), fmt.Sprintf("%s-%d", name, leader)
	return h.statefulSet(name, groups, 0, nil).write(&appsv1.StatefulSet{ObjectMeta: meta(leaderName, "StatefulSet", owned("v1", "Pod", leaderName), nil),
		Spec: appsv1.StatefulSetSpec{Replicas: &workers, Ordinals: &appsv1.StatefulSetOrdinals{Start: 1}}})
}

func (h *history) job(name string, edits ...func(*batchv1.Job)) *history {
	job := &batchv1.Job{ObjectMeta: meta(name, "Job", nil, nil), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](2), BackoffLimit: ptr.To[int32](6)}}
	for _, edit := range edits {
		edit(job)
	}
	return h.write(job)
}

// kinds waits for all judgements and returns the kinds of the breaches.
func (h *history) kinds() []BreachKind {
	h.wait(settle + tickEvery)
	var out []BreachKind
	for _, b := range findingsOf[Breach](h.core) {
		h.t.Log(b)
		out = append(out, b.Kind)
	}
	return out
}

func minOnDemand(value string) map[string]string {
	return map[string]string{"spot-aware-scheduler.io/min-on-demand": value}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
