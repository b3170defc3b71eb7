package workload

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Gated reports whether the pod has CapacityGate.
func Gated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate v1.PodSchedulingGate) bool { return gate.Name == spot.CapacityGate })
}

// HasOtherGates reports whether the pod has scheduling gates other than CapacityGate. Their owners
// may still change its node selector and affinity.
func HasOtherGates(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate v1.PodSchedulingGate) bool { return gate.Name != spot.CapacityGate })
}

// AssignedCapacityOf returns the capacity in AssignedAnnotation, or decision.Unassigned if the
// annotation is missing or has an unknown value.
func AssignedCapacityOf(pod *v1.Pod) decision.AssignedCapacity {
	word, _, _ := strings.Cut(pod.Annotations[spot.AssignedAnnotation], ":")
	return decision.ParseAssignedCapacity(word)
}

// GrantOf returns the grant in GrantedAnnotation, or decision.NotGranted if the annotation is
// missing or has an unknown value.
func GrantOf(pod *v1.Pod) decision.Grant {
	switch pod.Annotations[spot.GrantedAnnotation] {
	case spot.GrantedFallback:
		return decision.GrantFallback
	case spot.GrantedRelief:
		return decision.GrantRolloutRelief
	}
	return decision.NotGranted
}

// WithoutCapacityGate returns the scheduling gates of the pod except CapacityGate; never nil.
func WithoutCapacityGate(pod *v1.Pod) []v1.PodSchedulingGate {
	gates := append([]v1.PodSchedulingGate{}, pod.Spec.SchedulingGates...)
	return slices.DeleteFunc(gates, func(gate v1.PodSchedulingGate) bool { return gate.Name == spot.CapacityGate })
}
