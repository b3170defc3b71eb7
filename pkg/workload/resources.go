package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// RequestsOf returns the resources that a pod occupies on a node, as in the scheduler of Kubernetes
// 1.36 (PodInfo.CalculateResource), including one unit of "pods".
func RequestsOf(pod *v1.Pod) v1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	requests[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// ExtendedResources returns the names of the resources in the lists that not every node has, such
// as GPUs and huge pages, in order.
func ExtendedResources(lists ...v1.ResourceList) (names []v1.ResourceName) {
	for _, list := range lists {
		for name, quantity := range list {
			if r := ResourcesOf(v1.ResourceList{name: quantity}); r.Others[name] > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Offered returns the extended resources of a node. Unhealthy devices count.
func Offered(node *v1.Node) []v1.ResourceName {
	return ExtendedResources(node.Status.Capacity, node.Status.Allocatable)
}

// ResourcesNote names the extended resources that a pod requests, at most three, for the end of a
// note; "" if there is none.
func ResourcesNote(pod *v1.Pod) string {
	names := ExtendedResources(RequestsOf(pod))
	if len(names) == 0 {
		return ""
	}
	return "; it requests " + strings.Trim(fmt.Sprint(names[:min(len(names), 3)]), "[]")
}

// Resources contains requests or capacities in whole units, and CPU in thousandths.
type Resources struct {
	MilliCPU, Memory, EphemeralStorage, Pods int64
	// Others contains the resources of other names; nil means none.
	Others map[v1.ResourceName]int64
}

// ResourcesOf returns the resources of a list.
func ResourcesOf(list v1.ResourceList) (r Resources) {
	r.Add(list, 1)
	return r
}

// Add adds list times sign.
func (r *Resources) Add(list v1.ResourceList, sign int64) {
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			r.MilliCPU += sign * quantity.MilliValue()
		case v1.ResourceMemory:
			r.Memory += sign * quantity.Value()
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage += sign * quantity.Value()
		case v1.ResourcePods:
			r.Pods += sign * quantity.Value()
		default:
			if r.Others == nil {
				r.Others = map[v1.ResourceName]int64{}
			}
			r.Others[name] += sign * quantity.Value()
		}
	}
}

// Clone returns a copy.
func (r *Resources) Clone() *Resources {
	c := *r
	c.Others = maps.Clone(r.Others)
	return &c
}

// Covers reports whether there is enough of every requested resource. Resources that are not
// requested may be overcommitted.
func (r *Resources) Covers(need *Resources) bool {
	short := func(need, have int64) bool { return need > 0 && need > have }
	if short(need.Pods, r.Pods) || short(need.MilliCPU, r.MilliCPU) || short(need.Memory, r.Memory) ||
		short(need.EphemeralStorage, r.EphemeralStorage) {
		return false
	}
	for name, n := range need.Others {
		if short(n, r.Others[name]) {
			return false
		}
	}
	return true
}

// Requirements are what a pod requires of its node, as far as that does not depend on other pods:
// its Constraints and resources. The simulation and the scheduler's own search use them.
type Requirements struct {
	Constraints
	Needs Resources
}

// NewRequirements returns the requirements of a pod whose claims are bound to these volumes.
func NewRequirements(pod *v1.Pod, volumes []*v1.PersistentVolume, requests v1.ResourceList) *Requirements {
	return &Requirements{NewConstraints(pod, volumes), ResourcesOf(requests)}
}
