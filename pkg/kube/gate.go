package kube

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const (
	// CapacityGate is the scheduling gate that the admission policy of the autoscaler overlay adds to new pods. The controller removes it
	// when it has written the pod's capacity type as node affinity; the scheduler removes it if the controller does not in time.
	CapacityGate = "spot-aware-scheduler.io/capacity"
	// AssignedAnnotation records on a pod what the controller decided when it removed CapacityGate: an Assignment, a colon and why. Anybody who
	// may write the pod can write it, so that it decides nothing but preferences of that pod.
	AssignedAnnotation = "spot-aware-scheduler.io/assigned"
	// GrantedAnnotation says why a pod may take any spot node, over budget and cap: GrantedFallback or GrantedRelief. An admission
	// policy lets only the controller write it.
	GrantedAnnotation = "spot-aware-scheduler.io/granted"
	// GrantedFallback: a predecessor of the pod has waited for fallbackAfter.
	GrantedFallback = "fallback"
	// GrantedRelief: a predecessor of the pod has waited for rolloutRelief while an older revision held on-demand.
	GrantedRelief = "rollout-relief"
)

// Gated reports whether pod waits for CapacityGate to be removed.
func Gated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate v1.PodSchedulingGate) bool { return gate.Name == CapacityGate })
}

// AssignmentOf returns what AssignedAnnotation says; decision.Unassigned if it is not there or says nothing known.
func AssignmentOf(pod *v1.Pod) decision.Assignment {
	word, _, _ := strings.Cut(pod.Annotations[AssignedAnnotation], ":")
	return decision.ParseAssignment(word)
}

// GrantOf returns what GrantedAnnotation says; decision.NotGranted if it is not there or says nothing known.
func GrantOf(pod *v1.Pod) decision.Grant {
	switch pod.Annotations[GrantedAnnotation] {
	case GrantedFallback:
		return decision.FellBack
	case GrantedRelief:
		return decision.Relieved
	}
	return decision.NotGranted
}
