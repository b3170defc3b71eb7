package lister

import (
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

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
