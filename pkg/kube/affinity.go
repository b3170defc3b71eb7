package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// onlySpot reports whether the pod's own node selector, or every term of its required node affinity, names a capacity label with
// spot values only. It reads what the user wrote, not which nodes exist: a selector for a zone that happens to have nothing but
// spot is no decision for spot.
//
// A pod that was assigned spot requires it by the controller's word, not by its user's: it is not exempt from a floor.
func onlySpot(pod *v1.Pod, policy *decision.Policy) bool {
	return (Gated(pod) || AssignmentOf(pod) != decision.AssignedSpot) && demands(pod, func(e *v1.NodeSelectorRequirement) bool {
		switch e.Operator {
		case v1.NodeSelectorOpIn:
			return allSay(e, policy, decision.Spot)
		case v1.NodeSelectorOpExists:
			return policy.PresenceSaysSpot(e.Key)
		}
		return false
	})
}

// OnlyOnDemand reports whether the pod's own node selector, or every term of its required node affinity, keeps it off spot: it names a
// capacity label with on-demand values only, or refuses one that says spot.
func OnlyOnDemand(pod *v1.Pod, policy *decision.Policy) bool {
	return demands(pod, func(e *v1.NodeSelectorRequirement) bool {
		switch e.Operator {
		case v1.NodeSelectorOpIn:
			return allSay(e, policy, decision.OnDemand)
		case v1.NodeSelectorOpNotIn:
			return slices.ContainsFunc(e.Values, func(value string) bool { return says(e.Key, value, policy, decision.Spot) })
		case v1.NodeSelectorOpDoesNotExist:
			return policy.PresenceSaysSpot(e.Key)
		}
		return false
	})
}

// demands reports whether the pod can go to no node for which says does not hold of some expression. A label of the node selector is one
// with a single value.
func demands(pod *v1.Pod, says func(*v1.NodeSelectorRequirement) bool) bool {
	for key, value := range pod.Spec.NodeSelector {
		if says(&v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}) {
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
	// Terms are alternatives; the expressions of one term must all hold. An empty term selects no node.
	some := false
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		some = true
		expressions := term.MatchExpressions
		if !slices.ContainsFunc(expressions, func(e v1.NodeSelectorRequirement) bool { return says(&e) }) {
			return false
		}
	}
	return some
}

// allSay reports whether each of the expression's values, of which there is one, stands for this capacity type.
func allSay(e *v1.NodeSelectorRequirement, policy *decision.Policy, capacity decision.CapacityType) bool {
	return len(e.Values) > 0 && !slices.ContainsFunc(e.Values, func(value string) bool { return !says(e.Key, value, policy, capacity) })
}

func says(key, value string, policy *decision.Policy, capacity decision.CapacityType) bool {
	t, ok := policy.LabelSays(key, value)
	return ok && t == capacity
}
