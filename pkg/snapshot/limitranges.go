package snapshot

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// withLimitRanges returns what the LimitRanges of its namespace make of a new pod with the
// template, as the admission plugin LimitRanger does: its containers get the requests and limits
// that they lack. refused explains why the API server rejects the pod; "" if it does not. The
// template may be nil, and is not changed.
func withLimitRanges(template *v1.PodSpec, ranges []*v1.LimitRange) (created *v1.PodSpec, refused string) {
	if template == nil || len(ranges) == 0 {
		return template, ""
	}
	created = template.DeepCopy()
	var containers []v1.ResourceRequirements
	for _, list := range [][]v1.Container{created.InitContainers, created.Containers} {
		for i := range list {
			of := &list[i].Resources
			for _, r := range ranges {
				for _, item := range r.Spec.Limits {
					if item.Type == v1.LimitTypeContainer {
						of.Requests, of.Limits = transform.WithDefaults(of.Requests, item.DefaultRequest), transform.WithDefaults(of.Limits, item.Default)
					}
				}
			}
			containers = append(containers, *of)
		}
	}
	pod, options := &v1.Pod{Spec: *created}, resourcehelper.PodResourcesOptions{}
	limited := map[v1.LimitType][]v1.ResourceRequirements{v1.LimitTypeContainer: containers,
		v1.LimitTypePod: {{Requests: resourcehelper.PodRequests(pod, options), Limits: resourcehelper.PodLimits(pod, options)}}}
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			if slices.ContainsFunc(limited[item.Type], func(of v1.ResourceRequirements) bool { return violates(&item, &of) }) {
				return created, "LimitRange " + r.Name + " forbids a new pod of its template"
			}
		}
	}
	return created, ""
}

// violates reports whether requests and limits are outside of the range.
func violates(item *v1.LimitRangeItem, of *v1.ResourceRequirements) bool {
	for name, most := range item.Max {
		limit, limited := of.Limits[name]
		if request := of.Requests[name]; !limited || limit.Cmp(most) > 0 || request.Cmp(most) > 0 {
			return true
		}
	}
	for name, least := range item.Min {
		limit, limited := of.Limits[name]
		if request := of.Requests[name]; request.Cmp(least) < 0 || limited && limit.Cmp(least) < 0 {
			return true
		}
	}
	for name, most := range item.MaxLimitRequestRatio {
		limit, request := of.Limits[name], of.Requests[name]
		if request.IsZero() || limit.IsZero() || float64(limit.MilliValue())*1000 > float64(most.MilliValue())*float64(request.MilliValue()) {
			return true
		}
	}
	return false
}
