package lister

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TemplatePods returns one pod of each Deployment, StatefulSet and active Job. A workload that is
// scaled to 0 has none, unless Scope.IncludeScaledToZero is set. The pod is made from the template,
// with the fields that the API server would set. The order is undefined. A Deployment without a
// ReplicaSet is omitted.
func (s *Objects) TemplatePods() []*v1.Pod {
	apps, kind := s.factory.Apps().V1(), appsv1.SchemeGroupVersion.WithKind
	wants := func(replicas *int32) bool { return s.Scope.IncludeScaledToZero || workload.Replicas(replicas) > 0 }
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
		if rs := newest[key]; rs != nil && wants(d.Spec.Replicas) {
			pods = append(pods, podOf(rs, kind("ReplicaSet"), &d.Spec.Template, d.Name))
		}
	}
	for _, set := range snapshot.All(apps.StatefulSets().Lister()) {
		if wants(set.Spec.Replicas) {
			first := ptr.Deref(set.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
			pods = append(pods, podOf(set, kind("StatefulSet"), &set.Spec.Template, fmt.Sprintf("%s-%d", set.Name, first)))
		}
	}
	for _, job := range snapshot.All(s.factory.Batch().V1().Jobs().Lister()) {
		// It has failed, is complete, or is suspended: all conditions mean that it creates no pods.
		ends := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Status == v1.ConditionTrue })
		if !ends && wants(job.Spec.Parallelism) {
			pods = append(pods, podOf(job, batchv1.SchemeGroupVersion.WithKind("Job"), &job.Spec.Template, job.Name+"-0"))
		}
	}
	classes := snapshot.All(s.factory.Scheduling().V1().PriorityClasses().Lister())
	for _, pod := range pods {
		applyDefaults(pod, classes)
	}
	return pods
}

func podOf(owner metav1.Object, kind schema.GroupVersionKind, template *v1.PodTemplateSpec, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Namespace, pod.Name = owner.GetNamespace(), name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	return pod
}

// applyDefaults sets the fields of a pod from a template that the API server would set, as far as
// rules of the policy use them: its QoS class and its priority. classes contains the
// PriorityClasses of the cluster. It ignores LimitRanges.
func applyDefaults(pod *v1.Pod, classes []*schedulingv1.PriorityClass) {
	withRequests := &v1.Pod{Spec: pod.Spec}
	transform.DefaultRequests(&withRequests.Spec)
	pod.Status.QOSClass = qos.ComputePodQOS(withRequests)
	var class *schedulingv1.PriorityClass
	for _, c := range classes {
		switch {
		case pod.Spec.PriorityClassName != "":
			if c.Name == pod.Spec.PriorityClassName {
				class = c
			}
		case c.GlobalDefault && (class == nil || c.Value < class.Value): // the lowest if there are several
			class = c
		}
	}
	if class != nil {
		pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, &class.Value
	}
}
