package workload

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// GateKeptUntil returns until when the controller keeps CapacityGate because on-demand has no room
// for the pod; zero if it does not. Anyone who may write the pod can prolong its wait.
func GateKeptUntil(pod *v1.Pod) time.Time {
	until, _ := time.Parse(time.RFC3339, pod.Annotations[spot.WaitingSinceAnnotation])
	if !Gated(pod) || until.Before(pod.CreationTimestamp.Time) {
		return time.Time{}
	}
	return until
}

// Granted returns what GrantedAnnotation grants to this pod; "" for nothing, or if the controller
// wrote the annotation for another pod, and this one is a copy.
func Granted(pod *v1.Pod) string {
	grant, uid, _ := strings.Cut(pod.Annotations[spot.GrantedAnnotation], " ")
	if types.UID(uid) != pod.UID {
		return ""
	}
	return grant
}

// GrantOf returns the grant of the pod, or decision.NotGranted if it has none or an unknown one.
func GrantOf(pod *v1.Pod) decision.Grant {
	switch Granted(pod) {
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
