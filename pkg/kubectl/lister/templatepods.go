package lister

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TemplatePods returns one pod of each Deployment and StatefulSet whose scheduler name is profile.
// A workload that is scaled to 0 has none, unless Scope.IncludeScaledToZero is set. The pod is made
// from the template, with the fields that the API server would set. The order is by namespace, kind
// and name of the owner. Commands use these pods for workloads that have none. A Deployment without
// a ReplicaSet is omitted.
func (s *Objects) TemplatePods(profile string) ([]*v1.Pod, error) {
	deployments, err := s.factory.Apps().V1().Deployments().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	sets, err := s.factory.Apps().V1().StatefulSets().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	replicaSets, err := s.factory.Apps().V1().ReplicaSets().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	classes, err := s.factory.Scheduling().V1().PriorityClasses().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	wants := func(template *v1.PodTemplateSpec, replicas *int32) bool {
		return template.Spec.SchedulerName == profile && (s.Scope.IncludeScaledToZero || workload.Replicas(replicas) > 0)
	}
	newest := map[workload.OwnerKey]*appsv1.ReplicaSet{}
	for _, rs := range replicaSets {
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil && rs.DeletionTimestamp == nil {
			key := workload.KeyOf(rs.Namespace, owner)
			if n := newest[key]; n == nil || workload.RevisionNumber(rs) > workload.RevisionNumber(n) {
				newest[key] = rs
			}
		}
	}
	type templatePod struct {
		kind string
		pod  *v1.Pod
	}
	var all []templatePod
	for _, d := range deployments {
		key, _ := workload.ControllerKey(d)
		if rs := newest[key]; rs != nil && wants(&d.Spec.Template, d.Spec.Replicas) {
			all = append(all, templatePod{"Deployment", podOf(rs, "ReplicaSet", &d.Spec.Template, d.Name)})
		}
	}
	for _, set := range sets {
		if wants(&set.Spec.Template, set.Spec.Replicas) {
			first := int32(0)
			if set.Spec.Ordinals != nil {
				first = set.Spec.Ordinals.Start
			}
			all = append(all, templatePod{"StatefulSet", podOf(set, "StatefulSet", &set.Spec.Template, fmt.Sprintf("%s-%d", set.Name, first))})
		}
	}
	slices.SortFunc(all, func(a, b templatePod) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.kind, b.kind), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	pods := make([]*v1.Pod, len(all))
	for i := range all {
		pods[i] = all[i].pod
		applyDefaults(pods[i], classes)
	}
	return pods, nil
}

// podOf returns a pod that owner would create.
func podOf(owner metav1.Object, kind string, template *v1.PodTemplateSpec, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Namespace, pod.Name = owner.GetNamespace(), name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	return pod
}
