package report_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

const profile = "spot-aware-scheduler"

var now = time.Now().Truncate(time.Second)

// basic returns the policy of most tests: a floor of 1, and a fallback to spot after 5 minutes.
func basic() *decision.Policy {
	return &decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: 5 * time.Minute, RolloutRelief: 30 * time.Second},
		CapacityLabels: providers.CapacityLabels(),
	}
}

// newView returns a View of a cluster under a policy. Each line is one of
//
//	node NAME spot|on-demand|- TYPE/ZONE [cpu=4] [cordoned] [taint=KEY] [label=KEY=VALUE]
//	     [annotation=KEY=VALUE]
//	class NAME PRIORITY
//	deployment|statefulset|job NAME REPLICAS [PLACE…] [OPTION…]
//	daemonset|pod NAME PLACE [rs=OWNER] [OPTION…]
//
// There is a pod of one CPU for each PLACE: a node, or - for a waiting pod. Pods of deployment web
// are web-0, web-1 and so on, and their ReplicaSet is web-r. With old=N, the first N pods belong to
// an older ReplicaSet, web-old. The options:
//
//	min=N                   the min-on-demand annotation
//	profile=NAME            the schedulerName
//	cpu=N  zone=Z  anti=KEY only=spot|on-demand
//	start=N                 the first ordinal of a StatefulSet
//	waits=DURATION          the age of the PodScheduled condition
//	gated=NAME              a scheduling gate, by default example.com/gate
//	assigned=TEXT           the annotation with the assignment
//	granted=TEXT            the annotation with the grant
//	born=DURATION           the age of the pod
//	kept                    the controller's deletion cost
//	class=NAME              the priority class
func newView(t *testing.T, policy *decision.Policy, lines string) *report.View {
	t.Helper()
	listed, err := lister.List(t.Context(), listertest.Start(t, objectsOf(t, lines)...).Client(), lister.Scope{IncludeScaledToZero: true})
	if err != nil {
		t.Fatal(err)
	}
	return viewOf(t, listed, policy)
}

func objectsOf(t *testing.T, lines string) (objects []runtime.Object) {
	t.Helper()
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "node":
			objects = append(objects, nodeOf(words[1], words[2], words[3], words[4:]))
		case words[0] == "class":
			value, err := strconv.Atoi(words[2])
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: words[1]}, Value: int32(value)})
		default:
			objects = append(objects, workload(t, words[0], words[1], words[2:])...)
		}
	}
	return objects
}

func viewOf(t *testing.T, listed *lister.Objects, policy *decision.Policy) *report.View {
	t.Helper()
	snapshot, err := listed.Snapshot(policy, providers.Signals(), profile, now)
	if err != nil {
		t.Fatal(err)
	}
	owners, err := listed.Owners(policy)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := listed.TemplatePods(profile)
	if err != nil {
		t.Fatal(err)
	}
	return &report.View{Snapshot: snapshot, Policy: policy, Signals: providers.Signals(), Profile: profile, Owners: owners, TemplatePods: wanted}
}

// options has the words NAME or NAME=VALUE of a line.
type options []string

func (o options) get(name string) (string, bool) {
	for _, word := range o {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (o options) or(name, otherwise string) string {
	if value, given := o.get(name); given {
		return value
	}
	return otherwise
}

func meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), OwnerReferences: owners,
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}
}

func ownedBy(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
}

func nodeOf(name, capacity, pool string, o options) *v1.Node {
	instanceType, zone, _ := strings.Cut(pool, "/")
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels: map[string]string{v1.LabelHostname: name}, Annotations: map[string]string{}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			Allocatable: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse(o.or("cpu", "4")), v1.ResourcePods: resource.MustParse("110"),
			},
		},
	}
	for key, value := range map[string]string{spot.CapacityLabel: capacity, v1.LabelInstanceTypeStable: instanceType, v1.LabelTopologyZone: zone} {
		if value != "" && value != "-" {
			node.Labels[key] = value
		}
	}
	_, node.Spec.Unschedulable = o.get("cordoned")
	if key, given := o.get("taint"); given {
		node.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}}
	}
	for word, into := range map[string]map[string]string{"label": node.Labels, "annotation": node.Annotations} {
		if text, given := o.get(word); given {
			key, value, _ := strings.Cut(text, "=")
			into[key] = value
		}
	}
	return node
}

func workload(t *testing.T, kind, name string, rest []string) (objects []runtime.Object) {
	t.Helper()
	if kind == "pod" {
		if rs, given := options(rest[1:]).get("rs"); given {
			return []runtime.Object{podOf(name, rest[0], rest[1:], ownedBy("apps/v1", "ReplicaSet", rs))}
		}
		return []runtime.Object{podOf(name, rest[0], rest[1:])}
	}
	if kind == "daemonset" {
		return []runtime.Object{podOf(name, rest[0], rest[1:], ownedBy("apps/v1", "DaemonSet", name))}
	}
	n, err := strconv.Atoi(rest[0])
	if err != nil {
		t.Fatal(err)
	}
	replicas := ptr.To(int32(n))
	rest = rest[1:]
	first := slices.IndexFunc(rest, func(word string) bool { return strings.Contains(word, "=") || word == "gated" })
	if first < 0 {
		first = len(rest)
	}
	places, o := rest[:first], options(rest[first:])
	owner := meta(name)
	if least, given := o.get("min"); given {
		owner.Annotations = map[string]string{spot.MinOnDemandAnnotation: least}
	}
	template := v1.PodTemplateSpec{Spec: podOf(name, "-", o).Spec}
	owners := make([]metav1.OwnerReference, len(places))
	switch kind {
	case "deployment":
		old, _ := strconv.Atoi(o.or("old", "0"))
		for i := range owners {
			owners[i] = ownedBy("apps/v1", "ReplicaSet", name+"-r")
			if i < old {
				owners[i] = ownedBy("apps/v1", "ReplicaSet", name+"-old")
			}
		}
		objects = append(objects, &appsv1.Deployment{ObjectMeta: owner, Spec: appsv1.DeploymentSpec{Replicas: replicas, Template: template}})
		for i, rs := range []string{"-old", "-r"} {
			if rs == "-r" || old > 0 {
				m := meta(name+rs, ownedBy("apps/v1", "Deployment", name))
				m.Annotations = map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(i + 1)}
				objects = append(objects, &appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Replicas: replicas}})
			}
		}
	case "statefulset":
		start, _ := strconv.Atoi(o.or("start", "0"))
		for i := range owners {
			owners[i] = ownedBy("apps/v1", "StatefulSet", name)
		}
		objects = append(objects, &appsv1.StatefulSet{ObjectMeta: owner, Spec: appsv1.StatefulSetSpec{
			Replicas: replicas, Template: template, Ordinals: &appsv1.StatefulSetOrdinals{Start: int32(start)}}})
	case "job":
		for i := range owners {
			owners[i] = ownedBy("batch/v1", "Job", name)
		}
		objects = append(objects, &batchv1.Job{ObjectMeta: owner, Spec: batchv1.JobSpec{Parallelism: replicas}})
	default:
		t.Fatalf("unknown directive %q", kind)
	}
	for i, place := range places {
		objects = append(objects, podOf(fmt.Sprintf("%s-%d", name, i), place, o, owners[i]))
	}
	return objects
}

func podOf(name, place string, o options, owners ...metav1.OwnerReference) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: meta(name, owners...), Spec: v1.PodSpec{
		SchedulerName: o.or("profile", profile),
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(o.or("cpu", "1"))}}}},
	}}
	app, _, _ := strings.Cut(name, "-")
	pod.Labels = map[string]string{"app": app}
	if place != "-" {
		pod.Spec.NodeName = place
	} else if waited, given := o.get("waits"); given {
		d, err := time.ParseDuration(waited)
		if err != nil {
			panic(err)
		}
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			Message: "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available.", LastTransitionTime: metav1.NewTime(now.Add(-d)),
		}}
	}
	pod.Spec.PriorityClassName = o.or("class", "")
	if born, given := o.get("born"); given {
		ago, err := time.ParseDuration(born)
		if err != nil {
			panic(err)
		}
		pod.CreationTimestamp = metav1.NewTime(now.Add(-ago))
	}
	if _, kept := o.get("kept"); kept {
		pod.Annotations = map[string]string{v1.PodDeletionCost: "1000", spot.DeletionCostAnnotation: "1000"}
	}
	if gate, gated := o.get("gated"); gated {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: cmp.Or(gate, "example.com/gate")}}
	}
	for option, key := range map[string]string{"assigned": spot.AssignedAnnotation, "granted": spot.GrantedAnnotation} {
		if value, given := o.get(option); given {
			pod.Annotations = labels.Merge(pod.Annotations, labels.Set{key: value})
		}
	}
	if zone, given := o.get("zone"); given {
		pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: zone}
	}
	if capacity, given := o.get("only"); given {
		pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: capacity}
	}
	if key, given := o.get("anti"); given {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: key}}}}
	}
	return pod
}
