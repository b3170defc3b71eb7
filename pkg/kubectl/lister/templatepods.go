package lister

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TemplatePods returns one pod of each Deployment and StatefulSet whose scheduler name is profile.
// A workload that is scaled to 0 has none, unless Scope.IncludeScaledToZero is set. The pod is made
// from the template, with the fields that the API server would set. The order is by namespace, kind
// and name of the owner. Commands use these pods for workloads that have none. A Deployment without
// a ReplicaSet is omitted.
func (s *Objects) TemplatePods(profile string) []*v1.Pod {
	apps := s.factory.Apps().V1()
	wants := func(template *v1.PodTemplateSpec, replicas *int32) bool {
		return template.Spec.SchedulerName == profile && (s.Scope.IncludeScaledToZero || workload.Replicas(replicas) > 0)
	}
	newest := map[workload.OwnerKey]*appsv1.ReplicaSet{}
	for _, rs := range snapshot.All(apps.ReplicaSets().Lister()) {
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil && rs.DeletionTimestamp == nil {
			key := workload.KeyOf(rs.Namespace, owner)
			if n := newest[key]; n == nil || workload.RevisionNumber(rs) > workload.RevisionNumber(n) {
				newest[key] = rs
			}
		}
	}
	var pods []*v1.Pod
	for _, d := range snapshot.All(apps.Deployments().Lister()) {
		key, _ := workload.ControllerKey(d)
		if rs := newest[key]; rs != nil && wants(&d.Spec.Template, d.Spec.Replicas) {
			pods = append(pods, podOf(rs, "ReplicaSet", &d.Spec.Template, d.Name))
		}
	}
	for _, set := range snapshot.All(apps.StatefulSets().Lister()) {
		if wants(&set.Spec.Template, set.Spec.Replicas) {
			first := int32(0)
			if set.Spec.Ordinals != nil {
				first = set.Spec.Ordinals.Start
			}
			pods = append(pods, podOf(set, "StatefulSet", &set.Spec.Template, fmt.Sprintf("%s-%d", set.Name, first)))
		}
	}
	kindOf := func(pod *v1.Pod) string { return pod.OwnerReferences[0].Kind } // ReplicaSet for a Deployment, which has the same order
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(kindOf(a), kindOf(b)), cmp.Compare(a.Name, b.Name))
	})
	classes := snapshot.All(s.factory.Scheduling().V1().PriorityClasses().Lister())
	for _, pod := range pods {
		applyDefaults(pod, classes)
	}
	return pods
}

// podOf returns a pod that owner would create.
func podOf(owner metav1.Object, kind string, template *v1.PodTemplateSpec, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Namespace, pod.Name = owner.GetNamespace(), name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	return pod
}
