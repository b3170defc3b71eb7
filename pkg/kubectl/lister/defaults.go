package lister

import (
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// applyDefaults sets the fields of a pod from a template that the API server would set, as far as
// rules of the policy use them: its QoS class and its priority. classes contains the
// PriorityClasses of the cluster.
func applyDefaults(pod *v1.Pod, classes []*schedulingv1.PriorityClass) {
	pod.Status.QOSClass = qosClass(&pod.Spec)
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

// qosClass returns the QoS class of a pod with this specification, after the API server has set the
// default requests. It ignores LimitRanges.
func qosClass(template *v1.PodSpec) v1.PodQOSClass {
	spec := *template
	transform.DefaultRequests(&spec)
	var all []*v1.ResourceRequirements
	for _, list := range [][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i].Resources)
		}
	}
	if spec.Resources != nil { // pod-level resources replace the containers' resources
		all = []*v1.ResourceRequirements{spec.Resources}
	}
	requestsAny, equal := false, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			requestsAny = requestsAny || request.Sign() > 0 || limit.Sign() > 0
			equal = equal && limit.Sign() > 0 && request.Cmp(limit) == 0
		}
	}
	switch {
	case !requestsAny:
		return v1.PodQOSBestEffort
	case equal:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
