package kube

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const (
	// CapacityGate is the scheduling gate that the admission policy of the autoscaler overlay adds
	// to new pods. The controller removes it after it has written the pod's capacity type as node
	// affinity. If the controller does not remove it in time, the scheduler does.
	CapacityGate = "spot-aware-scheduler.io/capacity"
	// AssignedAnnotation records on a pod the decision of the controller when it removed
	// CapacityGate: an Assignment, a colon and the reason. Anyone who may write the pod can write
	// it. It therefore affects only preferences of that pod.
	AssignedAnnotation = "spot-aware-scheduler.io/assigned"
	// GrantedAnnotation is GrantedFallback or GrantedRelief on a pod that may use any spot node,
	// regardless of budget and cap. An admission policy lets only the controller write it.
	GrantedAnnotation = "spot-aware-scheduler.io/granted"
	// GrantedFallback means that a predecessor of the pod waited for fallbackAfter.
	GrantedFallback = "fallback"
	// GrantedRelief means that a predecessor of the pod waited for rolloutRelief while an older
	// revision occupied on-demand capacity.
	GrantedRelief = "rollout-relief"
)

// Gated reports whether the pod has CapacityGate.
func Gated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate v1.PodSchedulingGate) bool { return gate.Name == CapacityGate })
}

// AssignmentOf returns the assignment in AssignedAnnotation, or decision.Unassigned if the
// annotation is missing or has an unknown value.
func AssignmentOf(pod *v1.Pod) decision.Assignment {
	word, _, _ := strings.Cut(pod.Annotations[AssignedAnnotation], ":")
	return decision.ParseAssignment(word)
}

// GrantOf returns the grant in GrantedAnnotation, or decision.NotGranted if the annotation is
// missing or has an unknown value.
func GrantOf(pod *v1.Pod) decision.Grant {
	switch pod.Annotations[GrantedAnnotation] {
	case GrantedFallback:
		return decision.FellBack
	case GrantedRelief:
		return decision.Relieved
	}
	return decision.NotGranted
}
