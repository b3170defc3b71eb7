package gating

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Labels contains the node affinity expressions for capacity types.
type Labels struct {
	// notSpot are the expressions that a node that is not spot must match, as an autoscaler sees
	// the node; never empty.
	notSpot []v1.NodeSelectorRequirement
	// spot has the expression that a spot node must match; empty if no pod requires spot.
	spot []v1.NodeSelectorRequirement
}

// NewLabels returns the expressions for the node labels keys, whose values policy defines. If
// spotKey is empty, no pod requires spot. The errors name the fields of the section gating.
//
// Only labels that the autoscaler itself sets may be named. If a NotIn expression names another
// label, Karpenter invents a value for it and sets that on the node that it creates
// (nodeclaimtemplate.go in 1.14.1).
func NewLabels(policy *decision.Policy, keys []string, spotKey string) (*Labels, error) {
	var errs field.ErrorList
	l := &Labels{}
	path := field.NewPath("gating", "labels")
	for i, key := range keys {
		e, err := notSpot(policy, key)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i), key, err.Error()))
			continue
		}
		l.notSpot = append(l.notSpot, e)
		if policy.UnlabeledNodes == decision.Spot {
			break // one label that must exist is sufficient
		}
	}
	if len(keys) == 0 {
		errs = append(errs, field.Invalid(path, "[]", "expected a node label that marks spot nodes"))
	}
	if spotKey != "" {
		values, byPresence := policy.ValuesOf(spotKey, decision.Spot)
		switch {
		case byPresence:
			l.spot = []v1.NodeSelectorRequirement{{Key: spotKey, Operator: v1.NodeSelectorOpExists}}
		case len(values) > 0:
			l.spot = []v1.NodeSelectorRequirement{{Key: spotKey, Operator: v1.NodeSelectorOpIn, Values: values}}
		default:
			errs = append(errs, field.Invalid(field.NewPath("gating", "spotLabel"), spotKey,
				`expected a capacity label with values that mean spot, or "" if no pod shall require spot`))
		}
	}
	return l, errs.ToAggregate()
}

// notSpot returns the expression that matches nodes that are not spot according to the label key.
func notSpot(policy *decision.Policy, key string) (v1.NodeSelectorRequirement, error) {
	spot, byPresence := policy.ValuesOf(key, decision.Spot)
	onDemand, _ := policy.ValuesOf(key, decision.OnDemand)
	switch {
	case policy.UnlabeledNodes == decision.Spot:
		// A node without the label counts as spot, so the label must exist.
		if len(onDemand) == 0 {
			return v1.NodeSelectorRequirement{}, errors.New("expected a capacity label with values that mean on-demand, because " +
				"unlabeledNodes is Spot")
		}
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: onDemand}, nil
	case byPresence:
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpDoesNotExist}, nil
	case len(spot) > 0:
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpNotIn, Values: spot}, nil
	}
	return v1.NodeSelectorRequirement{}, errors.New("expected a capacity label whose values or whose presence mean spot")
}

// Disagreement describes how the affinity of floors and the policy, according to which the node has
// this capacity, disagree about a node; empty if they agree.
func (l *Labels) Disagreement(node *v1.Node, capacity decision.Capacity) string {
	notSpot := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: l.notSpot}}}
	admits, err := nodeaffinity.NewLazyErrorNodeSelector(notSpot).Match(node)
	admits = admits && err == nil
	switch {
	case !capacity.Labeled():
	case capacity.Type == decision.Spot && admits:
		return "Autoscalers consider this spot node on-demand and start no on-demand node while it has room: it has none of the labels in " +
			"gating.labels that mark spot nodes"
	case capacity.Type == decision.OnDemand && !admits:
		return "Pods of a floor do not fit on this on-demand node: a label in gating.labels marks it as spot"
	}
	return ""
}

// nodeAffinity returns a copy of the node affinity; empty if there is none. The argument may be
// nil.
func nodeAffinity(affinity *v1.Affinity) *v1.NodeAffinity {
	if affinity == nil || affinity.NodeAffinity == nil {
		return &v1.NodeAffinity{}
	}
	return affinity.NodeAffinity.DeepCopy()
}

// withRequired returns the node affinity with the expressions added to each of its required terms.
// The API server allows only this change for a gated pod that has such terms. withRequired skips
// expressions that a term already contains. It skips empty terms, which match no node, because the
// API server refuses to change them. The argument, which may be nil, is not modified.
func withRequired(affinity *v1.Affinity, expressions []v1.NodeSelectorRequirement) *v1.NodeAffinity {
	result := nodeAffinity(affinity)
	if result.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		term := v1.NodeSelectorTerm{MatchExpressions: slices.Clone(expressions)}
		result.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}
		return result
	}
	terms := result.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		term := &terms[i]
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		for _, e := range expressions {
			if !slices.ContainsFunc(term.MatchExpressions,
				func(has v1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(has, e) }) {
				term.MatchExpressions = append(term.MatchExpressions, e)
			}
		}
	}
	return result
}

// minWeight is the weight of the controller's preference, so that the user's preferences have
// priority.
const minWeight = 1

// withPreferred returns the node affinity with the expressions added as one preferred term. The
// argument, which may be nil, is not modified.
func withPreferred(affinity *v1.Affinity, expressions []v1.NodeSelectorRequirement) *v1.NodeAffinity {
	result := nodeAffinity(affinity)
	preferred := &result.PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = append(*preferred, v1.PreferredSchedulingTerm{Weight: minWeight,
		Preference: v1.NodeSelectorTerm{MatchExpressions: expressions}})
	return result
}

// String formats the expressions for the log.
func (l *Labels) String() string {
	spot := "nothing"
	if len(l.spot) > 0 {
		spot = fmt.Sprint(l.spot[0])
	}
	return fmt.Sprintf("not spot: %v; spot: %s", l.notSpot, spot)
}
