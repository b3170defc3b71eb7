package workload

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// onlySpot reports whether the pod's own node selector or required node affinity admits only spot
// nodes. That is so if the node selector, or every term of the affinity, requires a capacity label
// with spot values only. onlySpot reads the pod's specification; NodeEvidence considers the nodes
// that exist.
//
// If the controller assigned spot to the pod, the controller wrote this requirement, not the user.
// Such a pod is not exempt from a floor. GrantedExemption shows that the controller found other
// reasons, such as affinity to other pods.
func onlySpot(pod *v1.Pod, policy *decision.Policy) bool {
	return Granted(pod) == spot.GrantedExemption ||
		(Gated(pod) || AssignedCapacityOf(pod) != decision.AssignedSpot) && requires(pod, func(e *v1.NodeSelectorRequirement) bool {
			switch e.Operator {
			case v1.NodeSelectorOpIn:
				return allMatch(e, policy, decision.Spot)
			case v1.NodeSelectorOpExists:
				return policy.PresenceMeansSpot(e.Key)
			}
			return false
		})
}

// OnlyOnDemand reports whether the pod's own node selector or required node affinity excludes spot
// nodes. That is so if the node selector, or every term of the affinity, requires a capacity label
// with on-demand values only, or excludes a label value that means spot.
func OnlyOnDemand(pod *v1.Pod, policy *decision.Policy) bool {
	return requires(pod, func(e *v1.NodeSelectorRequirement) bool {
		switch e.Operator {
		case v1.NodeSelectorOpIn:
			return allMatch(e, policy, decision.OnDemand)
		case v1.NodeSelectorOpNotIn:
			return slices.ContainsFunc(e.Values, func(value string) bool { return valueMeans(e.Key, value, policy, decision.Spot) })
		case v1.NodeSelectorOpDoesNotExist:
			return policy.PresenceMeansSpot(e.Key)
		}
		return false
	})
}

// BeforeAssignment returns the pod without the requirement of the capacity type that the controller
// assigned to it: without expressions on capacity labels. A nil policy has no such labels.
func BeforeAssignment(pod *v1.Pod, policy *decision.Policy) *v1.Pod {
	if assigned := AssignedCapacityOf(pod); policy == nil || assigned != decision.AssignedOnDemand && assigned != decision.AssignedSpot {
		return pod
	}
	pod = pod.DeepCopy()
	terms := requiredTerms(pod)
	for i := range terms {
		terms[i].MatchExpressions = slices.DeleteFunc(terms[i].MatchExpressions, func(e v1.NodeSelectorRequirement) bool {
			return isCapacityLabel(policy, e.Key)
		})
		if len(terms[i].MatchExpressions)+len(terms[i].MatchFields) == 0 { // the terms are alternatives
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			break
		}
	}
	return pod
}

// OwnAffinity returns the affinity of a pod without what AssignedAnnotation explains: the
// requirement, and the preferences for a capacity type. The pod's own preferences for one are not
// distinguishable, and are removed too. It returns the affinity of the pod itself if the annotation
// explains none.
func OwnAffinity(pod *v1.Pod, policy *decision.Policy) *v1.Affinity {
	if pod.Annotations[spot.AssignedAnnotation] == "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.Affinity
	}
	own := BeforeAssignment(pod, policy).Spec.Affinity.DeepCopy()
	preferred := &own.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = slices.DeleteFunc(*preferred, func(t v1.PreferredSchedulingTerm) bool {
		return len(t.Preference.MatchFields) == 0 &&
			!slices.ContainsFunc(t.Preference.MatchExpressions, func(e v1.NodeSelectorRequirement) bool { return !isCapacityLabel(policy, e.Key) })
	})
	return own
}

// requires reports whether every node that the pod admits satisfies an expression for which match
// returns true. It treats each label of the node selector as an expression with a single value.
func requires(pod *v1.Pod, match func(*v1.NodeSelectorRequirement) bool) bool {
	for key, value := range pod.Spec.NodeSelector {
		if match(&v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}) {
			return true
		}
	}
	return requiresAll(requiredTerms(pod), match)
}

// requiresAll is requires for the terms of a node selector. They are alternatives. The expressions
// of one term must all match. An empty term matches no node.
func requiresAll(terms []v1.NodeSelectorTerm, match func(*v1.NodeSelectorRequirement) bool) bool {
	selects := false
	for _, term := range terms {
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		selects = true
		if !slices.ContainsFunc(term.MatchExpressions, func(e v1.NodeSelectorRequirement) bool { return match(&e) }) {
			return false
		}
	}
	return selects
}

func requiredTerms(pod *v1.Pod) []v1.NodeSelectorTerm {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func allMatch(e *v1.NodeSelectorRequirement, policy *decision.Policy, capacity decision.CapacityType) bool {
	return len(e.Values) > 0 && !slices.ContainsFunc(e.Values, func(value string) bool { return !valueMeans(e.Key, value, policy, capacity) })
}

func valueMeans(key, value string, policy *decision.Policy, capacity decision.CapacityType) bool {
	t, ok := policy.LabelMeaning(key, value)
	return ok && t == capacity
}
