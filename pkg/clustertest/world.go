// Package clustertest builds clusters for tests from lines of text.
package clustertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

const Profile = "spot-aware-scheduler"

var (
	Now         = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	BasicPolicy = &decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
		CapacityLabels: providers.CapacityLabels(),
		LabelGrace:     30 * time.Second,
	}
)

// World is a Reader with the contents of its caches. Tests add objects to the caches directly; the
// informers are not started.
type World struct {
	t       testing.TB
	Factory informers.SharedInformerFactory
	Reader  *snapshot.Reader
	Policy  decision.Policy
	Pods    map[string]*v1.Pod
}

func NewWorld(t testing.TB) *World {
	t.Helper()
	w := &World{t: t, Factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0), Policy: *BasicPolicy, Pods: map[string]*v1.Pod{}}
	var err error
	if w.Reader, err = snapshot.NewReader(w.Factory, &w.Policy, providers.Signals(), Profile, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *World) CacheOf(object runtime.Object) cache.Indexer {
	core, apps := w.Factory.Core().V1(), w.Factory.Apps().V1()
	switch object.(type) {
	case *v1.Node:
		return core.Nodes().Informer().GetIndexer()
	case *v1.Pod:
		return core.Pods().Informer().GetIndexer()
	case *v1.Service:
		return core.Services().Informer().GetIndexer()
	case *v1.PersistentVolume:
		return core.PersistentVolumes().Informer().GetIndexer()
	case *v1.PersistentVolumeClaim:
		return core.PersistentVolumeClaims().Informer().GetIndexer()
	case *appsv1.ReplicaSet:
		return apps.ReplicaSets().Informer().GetIndexer()
	case *appsv1.Deployment:
		return apps.Deployments().Informer().GetIndexer()
	case *appsv1.StatefulSet:
		return apps.StatefulSets().Informer().GetIndexer()
	case *appsv1.DaemonSet:
		return apps.DaemonSets().Informer().GetIndexer()
	case *v1.ReplicationController:
		return core.ReplicationControllers().Informer().GetIndexer()
	case *batchv1.Job:
		return w.Factory.Batch().V1().Jobs().Informer().GetIndexer()
	case *policyv1.PodDisruptionBudget:
		return w.Factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer()
	}
	w.t.Fatalf("no cache for %T", object)
	return nil
}

func (w *World) Put(objects ...runtime.Object) {
	w.t.Helper()
	for _, object := range objects {
		trimmed, err := transform.Trim(object)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.CacheOf(object).Update(trimmed); err != nil {
			w.t.Fatal(err)
		}
		if pod, ok := object.(*v1.Pod); ok {
			w.Pods[pod.Name] = pod
		}
	}
}

func (w *World) Remove(object runtime.Object) {
	w.t.Helper()
	if err := w.CacheOf(object).Delete(object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *World) Snapshot() *snapshot.Snapshot {
	w.t.Helper()
	s, err := w.Reader.Snapshot(Now)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// Meta returns the metadata of an object in namespace shop; its UID is "<name>-uid".
func Meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), OwnerReferences: owners,
		CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
	}
}

func OwnedBy(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
}

// Options are the words NAME or NAME=VALUE of a line.
type Options []string

func (o Options) get(name string) (value string, given bool) {
	for _, word := range o {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (o Options) number(name string, otherwise int) int {
	if value, given := o.get(name); given {
		n, err := strconv.Atoi(value)
		if err != nil {
			panic(err)
		}
		return n
	}
	return otherwise
}

// Build adds the objects that lines describe:
//
//	node NAME spot|on-demand TYPE/ZONE [cpu=4] [pods=110] [cordoned] [notready]
//	     [taint=KEY] [label=KEY=VALUE] [without=KEY]
//	deployment|statefulset|job NAME REPLICAS [PLACE…] [OPTION…]
//
// Each PLACE creates a pod: NODE, !NODE (terminating), ~NODE (released) or - (pending). The options
// of pods: cpu=1 min=N (min-on-demand) profile=NAME priority=N nominated=NODE anti=KEY near=APP/KEY
// port=N zone=Z spread=KEY,… (with skew=N domains=N taints=POLICY selector=POLICY perrevision)
// volume=ZONE tolerates=KEY gated assigned=TEXT granted=TEXT mixed (their labels differ). The pods
// of deployment web, whose ReplicaSet is web-r, are web-0, web-1 and so on.
func (w *World) Build(lines string) {
	w.t.Helper()
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "node":
			w.Put(NewNode(words[1], words[2], words[3], words[4:]))
		default:
			w.workload(words[0], words[1], words[2], words[3:])
		}
	}
}

func NewNode(name, capacity, pool string, o Options) *v1.Node {
	instanceType, zone, _ := strings.Cut(pool, "/")
	cpu, pods := o.number("cpu", 4), o.number("pods", 110)
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
			Labels: map[string]string{
				spot.CapacityLabel: capacity, v1.LabelInstanceTypeStable: instanceType, v1.LabelTopologyZone: zone, v1.LabelHostname: name,
			}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			Allocatable: v1.ResourceList{
				v1.ResourceCPU:  *resource.NewQuantity(int64(cpu), resource.DecimalSI),
				v1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI),
			},
		},
	}
	_, node.Spec.Unschedulable = o.get("cordoned")
	if _, given := o.get("notready"); given {
		node.Status.Conditions[0].Status = v1.ConditionFalse
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(Now.Add(-time.Second))
	}
	if key, given := o.get("taint"); given {
		node.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}}
	}
	if key, given := o.get("without"); given {
		delete(node.Labels, key)
	}
	if label, given := o.get("label"); given {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	return node
}

func (w *World) workload(kind, name, desired string, rest []string) {
	w.t.Helper()
	n, err := strconv.Atoi(desired)
	if err != nil {
		w.t.Fatal(err)
	}
	replicas := ptr.To(int32(n))
	first := slices.IndexFunc(rest, func(word string) bool { return strings.Contains(word, "=") || word == "gated" || word == "mixed" })
	if first < 0 {
		first = len(rest)
	}
	places, o := rest[:first], Options(rest[first:])
	objectMeta := Meta(name)
	if least, given := o.get("min"); given {
		objectMeta.Annotations = map[string]string{spot.MinOnDemandAnnotation: least}
	}
	var owner metav1.OwnerReference
	switch kind {
	case "deployment":
		rs := &appsv1.ReplicaSet{ObjectMeta: Meta(name+"-r", OwnedBy("apps/v1", "Deployment", name)), Spec: appsv1.ReplicaSetSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name, appsv1.DefaultDeploymentUniqueLabelKey: "r"}},
		}}
		w.Put(&appsv1.Deployment{ObjectMeta: objectMeta, Spec: appsv1.DeploymentSpec{Replicas: replicas}}, rs)
		owner = OwnedBy("apps/v1", "ReplicaSet", rs.Name)
	case "statefulset":
		w.Put(&appsv1.StatefulSet{ObjectMeta: objectMeta, Spec: appsv1.StatefulSetSpec{Replicas: replicas}})
		owner = OwnedBy("apps/v1", "StatefulSet", name)
	case "job":
		w.Put(&batchv1.Job{ObjectMeta: objectMeta, Spec: batchv1.JobSpec{Parallelism: replicas}})
		owner = OwnedBy("batch/v1", "Job", name)
	default:
		w.t.Fatalf("unknown directive %q", kind)
	}
	for i, place := range places {
		pod := w.NewPod(fmt.Sprintf("%s-%d", name, i), owner, o)
		pod.Labels = map[string]string{"app": name, appsv1.DefaultDeploymentUniqueLabelKey: "r"}
		if _, given := o.get("mixed"); given {
			pod.Labels[[]string{"index", "app", appsv1.DefaultDeploymentUniqueLabelKey}[i%3]] = "other"
		}
		switch place[0] {
		case '-':
		case '!':
			pod.Spec.NodeName, pod.DeletionTimestamp = place[1:], &metav1.Time{Time: Now}
		case '~':
			pod.Spec.NodeName = place[1:]
			Release(pod)
		default:
			pod.Spec.NodeName = place
		}
		w.Put(pod)
	}
}

// Release turns pod into a pod that was released from its ReplicaSet.
func Release(pod *v1.Pod) {
	ref := pod.OwnerReferences[0]
	text, err := json.Marshal(snapshot.Release{ReplicaSet: ref.Name, ReplicaSetUID: ref.UID, Hash: "r", Reason: "heal", At: Now})
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{spot.ReleasedAnnotation: string(text)}
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = spot.ReleasedHash
	pod.OwnerReferences = nil
}

func (w *World) NewPod(name string, owner metav1.OwnerReference, o Options) *v1.Pod {
	cpu, _ := o.get("cpu")
	if cpu == "" {
		cpu = "1"
	}
	pod := &v1.Pod{ObjectMeta: Meta(name, owner), Spec: v1.PodSpec{
		SchedulerName: Profile,
		Containers:    []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}},
	}}
	if scheduler, given := o.get("profile"); given {
		pod.Spec.SchedulerName = scheduler
	}
	if _, given := o.get("priority"); given {
		pod.Spec.Priority = ptr.To(int32(o.number("priority", 0)))
	}
	pod.Status.NominatedNodeName, _ = o.get("nominated")
	if _, given := o.get("gated"); given {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
	}
	for option, key := range map[string]string{"assigned": spot.AssignedAnnotation, "granted": spot.GrantedAnnotation} {
		if value, given := o.get(option); given {
			pod.Annotations = map[string]string{key: value}
		}
	}
	if port := o.number("port", 0); port > 0 {
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(port)}}
	}
	if key, given := o.get("tolerates"); given {
		pod.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}}
	}
	if zone, given := o.get("zone"); given {
		pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: zone}
	}
	set, _, _ := strings.Cut(owner.Name, "-r")
	own := &metav1.LabelSelector{MatchLabels: map[string]string{"app": set}}
	if key, given := o.get("anti"); given {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: own, TopologyKey: key}}}}
	}
	if near, given := o.get("near"); given {
		app, key, _ := strings.Cut(near, "/")
		pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: key}}}}
	}
	if keys, given := o.get("spread"); given {
		for key := range strings.SplitSeq(keys, ",") {
			c := v1.TopologySpreadConstraint{
				MaxSkew: int32(o.number("skew", 1)), TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: own}
			if least := o.number("domains", 0); least > 0 {
				c.MinDomains = ptr.To(int32(least))
			}
			if policy, given := o.get("taints"); given {
				c.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicy(policy))
			}
			if policy, given := o.get("selector"); given {
				c.NodeAffinityPolicy = ptr.To(v1.NodeInclusionPolicy(policy))
			}
			if _, given := o.get("perrevision"); given {
				c.MatchLabelKeys = []string{appsv1.DefaultDeploymentUniqueLabelKey}
			}
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, c)
		}
	}
	if zone, given := o.get("volume"); given {
		in := []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: Meta("data-" + name)}
		if zone != "unbound" {
			claim.Spec.VolumeName = "pv-" + name
			affinity := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: in}}}}
			w.Put(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
				Spec: v1.PersistentVolumeSpec{NodeAffinity: affinity}})
		}
		w.Put(claim)
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
	}
	return pod
}

// Find returns the pod with that name.
func Find(t testing.TB, s *snapshot.Snapshot, name string) *snapshot.Pod {
	t.Helper()
	i := slices.IndexFunc(s.Pods, func(p *snapshot.Pod) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no pod %s", name)
	}
	return s.Pods[i]
}

// AddFleet adds nodes of 12 pools, 70 % spot, and Deployments of 10 replicas. Their pods request
// one CPU and run on the nodes in turn.
func (w *World) AddFleet(nodes, cpu, pods int, o ...string) {
	for i := range nodes {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		w.Put(NewNode(fmt.Sprintf("n%05d", i), capacity, fmt.Sprintf("m%d/z%d", i%4, i%3), Options{fmt.Sprintf("cpu=%d", cpu)}))
	}
	for i := range pods {
		name := fmt.Sprintf("web%05d", i/10)
		if i%10 == 0 {
			ten, set := ptr.To[int32](10), Meta(name+"-r", OwnedBy("apps/v1", "Deployment", name))
			w.Put(&appsv1.Deployment{ObjectMeta: Meta(name), Spec: appsv1.DeploymentSpec{Replicas: ten}},
				&appsv1.ReplicaSet{ObjectMeta: set, Spec: appsv1.ReplicaSetSpec{Replicas: ten}})
		}
		pod := w.NewPod(fmt.Sprintf("%s-%d", name, i%10), OwnedBy("apps/v1", "ReplicaSet", name+"-r"), o)
		pod.Labels = map[string]string{"app": name}
		pod.Spec.NodeName = fmt.Sprintf("n%05d", i%nodes)
		w.Put(pod)
	}
}
