package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// onlySpot reports whether the pod's own node selector, or every term of its required node affinity, names a capacity label with
// spot values only. It reads what the user wrote, not which nodes exist: a selector for a zone that happens to have nothing but
// spot is no decision for spot.
func onlySpot(pod *v1.Pod, policy *decision.Policy) bool {
	for key, value := range pod.Spec.NodeSelector {
		if t, ok := policy.LabelSays(key, value); ok && t == decision.Spot {
			return true
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return false
	}
	// Terms are alternatives; the expressions of one term must all hold.
	for i := range required.NodeSelectorTerms {
		if !termOnlySpot(required.NodeSelectorTerms[i].MatchExpressions, policy) {
			return false
		}
	}
	return true
}

func termOnlySpot(expressions []v1.NodeSelectorRequirement, policy *decision.Policy) bool {
	for i := range expressions {
		e := &expressions[i]
		switch e.Operator {
		case v1.NodeSelectorOpIn:
			if len(e.Values) > 0 && allSpot(e.Key, e.Values, policy) {
				return true
			}
		case v1.NodeSelectorOpExists:
			if policy.PresenceSaysSpot(e.Key) {
				return true
			}
		}
	}
	return false
}

func allSpot(key string, values []string, policy *decision.Policy) bool {
	for _, value := range values {
		if t, ok := policy.LabelSays(key, value); !ok || t != decision.Spot {
			return false
		}
	}
	return true
}
