package clustertest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Objects returns the objects that lines describe, in their order. The package documentation
// defines the notation. Objects panics at a line that it cannot read.
func Objects(lines string) []runtime.Object {
	var objects []runtime.Object
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 0 {
			objects = append(objects, read(fields)...)
		}
	}
	return objects
}

func read(line []string) []runtime.Object {
	kind, name, rest := line[0], line[1], line[2:]
	first := slices.IndexFunc(rest, isOption)
	if first < 0 {
		first = len(rest)
	}
	places, o := rest[:first], words(rest[first:])
	switch kind {
	case "node":
		capacity := places[0]
		if capacity == "-" {
			capacity = ""
		}
		pool := "m/a"
		if len(places) > 1 {
			pool = places[1]
		}
		return []runtime.Object{NewNode(name, capacity, pool, o...)}
	case "namespace":
		return []runtime.Object{&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{spot.OptInLabel: places[0]}}}}
	case "class":
		return []runtime.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: int32(number(places[0]))}}
	case "budget":
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: Meta(name),
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: ofApp(name)},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(number(places[0]))},
		}
		if value, given := o.get("minAvailable"); given {
			budget.Spec.MinAvailable = new(intstr.Parse(value))
		}
		if value, given := o.get("maxUnavailable"); given {
			budget.Spec.MaxUnavailable = new(intstr.Parse(value))
		}
		return []runtime.Object{budget}
	case "pod":
		var owners []metav1.OwnerReference
		if owner, given := o.get("owner"); given {
			i := strings.LastIndex(owner, "/")
			owners = append(owners, OwnedBy(owner[:i], owner[i+1:]))
		}
		pod := place(NewPod(name, owners...), places[0], o)
		annotate(pod, o)
		return []runtime.Object{pod}
	case "daemonset":
		return []runtime.Object{place(NewPod(name, OwnedBy("DaemonSet", name)), places[0], o)}
	}
	return workloadOf(kind, name, int32(number(places[0])), places[1:], o)
}

func workloadOf(kind, name string, replicas int32, places []string, o words) []runtime.Object {
	template := v1.PodTemplateSpec{Spec: place(NewPod(name+"-template"), "-", o).Spec}
	if value, given := o.get("optin"); given {
		template.Labels = map[string]string{spot.OptInLabel: value}
	}
	var objects []runtime.Object
	var ownerOf func(replica int) metav1.OwnerReference
	switch kind {
	case "deployment":
		revisions, old := []string{"r"}, number(o.or("old", "0"))
		if old > 0 {
			revisions = []string{"old", "r"}
		}
		objects = NewDeployment(name, replicas, revisions...)
		objects[0].(*appsv1.Deployment).Spec.Template = template
		if old > 0 { // each ReplicaSet wants its share of the pods
			objects[1].(*appsv1.ReplicaSet).Spec.Replicas = new(int32(old))
			objects[2].(*appsv1.ReplicaSet).Spec.Replicas = new(int32(max(int(replicas), len(places)) - old))
		}
		ownerOf = func(i int) metav1.OwnerReference {
			if i < old {
				return OwnedBy("ReplicaSet", name+"-old")
			}
			return OwnedBy("ReplicaSet", name+"-r")
		}
	case "statefulset":
		set := NewStatefulSet(name, replicas)
		set.Spec.Template = template
		if start := number(o.or("start", "0")); start != 0 {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
		}
		objects = append(objects, set)
		ownerOf = func(int) metav1.OwnerReference { return OwnedBy("StatefulSet", name) }
	case "job":
		job := NewJob(name, replicas)
		job.Spec.Template = template
		objects = append(objects, job)
		ownerOf = func(int) metav1.OwnerReference { return OwnedBy("Job", name) }
	default:
		panic(fmt.Sprintf("unknown directive %q", kind))
	}
	annotate(objects[0].(metav1.Object), o)
	if by, given := o.get("by"); given {
		i := strings.LastIndex(by, "/")
		objects[0].(metav1.Object).SetOwnerReferences([]metav1.OwnerReference{OwnedBy(by[:i], by[i+1:])})
	}
	for i, where := range places {
		objects = append(objects, replica(name, i, ownerOf(i), where, o)...)
	}
	return objects
}

// annotate gives a workload, or a single pod, the annotations that configure its policy.
func annotate(object metav1.Object, o words) {
	annotations := map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	for option, key := range map[string]string{"min": spot.MinOnDemandAnnotation, "cap": spot.MaxPerPoolAnnotation,
		"disruptions": spot.DisruptionsAnnotation} {
		if value, given := o.get(option); given {
			annotations[key] = value
		}
	}
	object.SetAnnotations(annotations)
}

// replica returns pod i of a workload, after the objects of its volume.
func replica(app string, i int, owner metav1.OwnerReference, where string, o words) []runtime.Object {
	pod := NewPod(fmt.Sprintf("%s-%d", app, i), owner)
	// All pods have the label, because constraints per revision (perrevision) name it.
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "r"
	if owner.Kind == "ReplicaSet" {
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = strings.TrimPrefix(owner.Name, app+"-")
	}
	var objects []runtime.Object
	if zone, given := o.get("volume"); given {
		objects = addVolume(pod, zone)
		if volume, ok := objects[len(objects)-1].(*v1.PersistentVolume); ok && o.has("local") {
			volume.Spec.Local = &v1.LocalVolumeSource{Path: "/disk"}
		}
	}
	if o.has("hostpath") {
		source := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "host", VolumeSource: source})
	}
	place(pod, where, o)
	if o.has("mixed") {
		pod.Labels[[]string{"index", "app", appsv1.DefaultDeploymentUniqueLabelKey}[i%3]] = "other"
	}
	return append(objects, pod)
}

func place(pod *v1.Pod, where string, o words) *v1.Pod {
	setOptions(pod, o)
	switch where[0] {
	case '-':
		pod.Status.NominatedNodeName, _ = o.get("nominated")
		if waits, given := o.get("waits"); given {
			pod.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: ago(waits),
				Message: "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available.",
			}}
		}
	case '!':
		pod.Spec.NodeName = where[1:]
		Terminate(pod)
	case '~':
		pod.Spec.NodeName = where[1:]
		Release(pod)
	default:
		pod.Spec.NodeName = where
	}
	return pod
}

// setOptions gives pod the options that do not depend on its place.
func setOptions(pod *v1.Pod, o words) {
	o.check(podOptions)
	spec := &pod.Spec
	spec.SchedulerName, spec.PriorityClassName = o.or("profile", Profile), o.or("class", "")
	spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(o.or("cpu", "1"))
	if priority, given := o.get("priority"); given {
		spec.Priority = new(int32(number(priority)))
	}
	if policy, given := o.get("preempts"); given {
		spec.PreemptionPolicy = new(v1.PreemptionPolicy(policy))
	}
	if port := number(o.or("port", "0")); port > 0 {
		spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(port)}}
	}
	if born, given := o.get("born"); given {
		pod.CreationTimestamp = ago(born)
	}
	if gate, given := o.get("gated"); given {
		for name := range strings.SplitSeq(cmp.Or(gate, "example.com/gate"), ",") {
			spec.SchedulingGates = append(spec.SchedulingGates, v1.PodSchedulingGate{Name: name})
		}
	}
	for option, key := range map[string]string{"assigned": spot.AssignedAnnotation, "granted": spot.GrantedAnnotation} {
		if value, given := o.get(option); given {
			if key == spot.GrantedAnnotation {
				value += "_" + string(pod.UID)
			}
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, strings.ReplaceAll(value, "_", " "))
		}
	}
	if value, given := o.get("optin"); given {
		pod.Labels[spot.OptInLabel] = value
	}
	if o.has("kept") {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1.PodDeletionCost, "1000")
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, spot.DeletionCostAnnotation, "1000")
	}
	setConstraints(pod, o)
}

// setConstraints gives pod the options that limit its nodes.
func setConstraints(pod *v1.Pod, o words) {
	if key, given := o.get("tolerates"); given {
		pod.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}}
	}
	for option, key := range map[string]string{"zone": v1.LabelTopologyZone, "only": spot.CapacityLabel} {
		if value, given := o.get(option); given {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[key] = value
		}
	}
	if terms, given := o.get("requires"); given {
		requireLabels(pod, terms)
	}
	own := ofApp(pod.Labels["app"])
	if key, given := o.get("anti"); given {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: own, TopologyKey: key}}}}
	}
	if near, given := o.get("near"); given {
		app, key, _ := strings.Cut(near, "/")
		pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: ofApp(app), TopologyKey: key}}}}
	}
	keys, given := o.get("spread")
	if !given {
		return
	}
	for key := range strings.SplitSeq(keys, ",") {
		c := v1.TopologySpreadConstraint{
			MaxSkew: int32(number(o.or("skew", "1"))), TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: own}
		if least := number(o.or("domains", "0")); least > 0 {
			c.MinDomains = new(int32(least))
		}
		if policy, given := o.get("taints"); given {
			c.NodeTaintsPolicy = new(v1.NodeInclusionPolicy(policy))
		}
		if policy, given := o.get("selector"); given {
			c.NodeAffinityPolicy = new(v1.NodeInclusionPolicy(policy))
		}
		if o.has("perrevision") {
			c.MatchLabelKeys = []string{appsv1.DefaultDeploymentUniqueLabelKey}
		}
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, c)
	}
}

// requireLabels gives pod a required node affinity with the expressions KEY=VALUE and KEY!=VALUE.
func requireLabels(pod *v1.Pod, expressions string) {
	var term v1.NodeSelectorTerm
	for expression := range strings.SplitSeq(expressions, ",") {
		key, value, _ := strings.Cut(expression, "=")
		r := v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}
		if except, excludes := strings.CutSuffix(key, "!"); excludes {
			r.Key, r.Operator = except, v1.NodeSelectorOpNotIn
		}
		term.MatchExpressions = append(term.MatchExpressions, r)
	}
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}}
}

func ofApp(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// addVolume gives pod a claim and returns it, with its volume in a zone unless zone is unbound.
func addVolume(pod *v1.Pod, zone string) []runtime.Object {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: Meta("data-" + pod.Name)}
	pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
	if zone == "unbound" {
		return []runtime.Object{claim}
	}
	claim.Spec.VolumeName = "pv-" + pod.Name
	in := []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	terms := []v1.NodeSelectorTerm{{MatchExpressions: in}}
	volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
	return []runtime.Object{claim, volume}
}

// The options of nodes, and of workloads and pods.
var (
	nodeOptions = strings.Fields("cpu pods born cordoned notready taint label without annotation")
	podOptions  = strings.Fields(`min cap disruptions old start volume local hostpath by mixed minAvailable maxUnavailable
		owner profile cpu port priority preempts class born waits nominated gated assigned granted optin kept
		tolerates zone only requires anti near spread skew domains taints selector perrevision`)
)

// words are the options NAME and NAME=VALUE of a line.
type words []string

// isOption reports whether a word is an option, not a place.
func isOption(word string) bool {
	return strings.Contains(word, "=") ||
		slices.Contains([]string{"cordoned", "notready", "gated", "mixed", "kept", "perrevision", "local", "hostpath"}, word)
}

func (o words) check(known []string) {
	for _, word := range o {
		if name, _, _ := strings.Cut(word, "="); !slices.Contains(known, name) {
			panic(fmt.Sprintf("unknown option %q, want one of %q", word, known))
		}
	}
}

func (o words) get(name string) (value string, given bool) {
	for _, word := range o {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (o words) has(name string) bool {
	_, given := o.get(name)
	return given
}

func (o words) or(name, otherwise string) string {
	if value, given := o.get(name); given {
		return value
	}
	return otherwise
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// ago returns the time that was this duration before Now.
func ago(duration string) metav1.Time {
	d, err := time.ParseDuration(duration)
	if err != nil {
		panic(err)
	}
	return metav1.NewTime(Now.Add(-d))
}
