package survey

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// admit gives a pod that was made from a template what the API server would give it, as far as rules of the policy ask for it: its QoS
// class, and its priority by the classes that there are.
func admit(pod *v1.Pod, classes []*schedulingv1.PriorityClass) {
	pod.Status.QOSClass = qosClass(&pod.Spec)
	var class *schedulingv1.PriorityClass
	for _, c := range classes {
		switch {
		case pod.Spec.PriorityClassName != "":
			if c.Name == pod.Spec.PriorityClassName {
				class = c
			}
		case c.GlobalDefault && (class == nil || c.Value < class.Value): // the lowest, if there is more than one
			class = c
		}
	}
	if class != nil {
		pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, &class.Value
	}
}

// qosClass returns the QoS class of a pod with this specification, after the API server has filled in its requests. What a LimitRange would
// add is not known here.
func qosClass(spec *v1.PodSpec) v1.PodQOSClass {
	containers, inits := slices.Clone(spec.Containers), slices.Clone(spec.InitContainers)
	var all []*v1.ResourceRequirements
	for _, some := range [][]v1.Container{containers, inits} {
		for i := range some {
			some[i].Resources.Requests = withDefaults(some[i].Resources.Requests, some[i].Resources.Limits)
			all = append(all, &some[i].Resources)
		}
	}
	if spec.Resources != nil { // what is said of the whole pod counts alone
		whole := *spec.Resources
		if len(whole.Limits) > 0 {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: containers, InitContainers: inits}}
			parts := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
			whole.Requests = withDefaults(withDefaults(whole.Requests, parts), whole.Limits)
		}
		all = []*v1.ResourceRequirements{&whole}
	}
	something, equal := false, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			something = something || request.Sign() > 0 || limit.Sign() > 0
			equal = equal && limit.Sign() > 0 && request.Cmp(limit) == 0
		}
	}
	switch {
	case !something:
		return v1.PodQOSBestEffort
	case equal:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// withDefaults returns requests with those of others that are not given.
func withDefaults(requests, others v1.ResourceList) v1.ResourceList {
	all := maps.Clone(others)
	if all == nil {
		all = v1.ResourceList{}
	}
	maps.Copy(all, requests)
	return all
}
