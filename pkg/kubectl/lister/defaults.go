package lister

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	resourcehelper "k8s.io/component-helpers/resource"
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
func qosClass(spec *v1.PodSpec) v1.PodQOSClass {
	containers, inits := slices.Clone(spec.Containers), slices.Clone(spec.InitContainers)
	var all []*v1.ResourceRequirements
	for _, list := range [][]v1.Container{containers, inits} {
		for i := range list {
			list[i].Resources.Requests = withDefaults(list[i].Resources.Requests, list[i].Resources.Limits)
			all = append(all, &list[i].Resources)
		}
	}
	if spec.Resources != nil { // pod-level resources replace the containers' resources
		whole := *spec.Resources
		if len(whole.Limits) > 0 {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: containers, InitContainers: inits}}
			parts := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
			whole.Requests = withDefaults(withDefaults(whole.Requests, parts), whole.Limits)
		}
		all = []*v1.ResourceRequirements{&whole}
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

// withDefaults returns requests, and others for the resources that requests does not contain.
func withDefaults(requests, others v1.ResourceList) v1.ResourceList {
	all := v1.ResourceList{}
	maps.Copy(all, others)
	maps.Copy(all, requests)
	return all
}
