package gating

import (
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Labels contains the node affinity expressions for capacity types.
type Labels struct {
	// notSpot are the expressions that a node that is not spot must match, as an autoscaler sees
	// the node; never empty.
	notSpot []v1.NodeSelectorRequirement
	// spot has an expression for each provisioner. A spot node must match one. It is empty if no
	// pod requires spot. Terms that a pod has get only the first one.
	spot []v1.NodeSelectorRequirement
}

// NewLabels returns the expressions for the node labels keys, whose values policy defines. A pod
// that requires spot may use the label spotKey, or a label of keys; if spotKey is empty, no pod
// requires spot. The errors name the fields of the section gating.
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
		e, err := isSpot(policy, spotKey)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("gating", "spotLabel"), spotKey, err.Error()))
		}
		l.spot = []v1.NodeSelectorRequirement{e}
		for _, key := range keys {
			if e, err := isSpot(policy, key); err == nil && key != spotKey {
				l.spot = append(l.spot, e)
			}
		}
	}
	return l, errs.ToAggregate()
}

// isSpot returns the expression that matches nodes that are spot according to the label key.
func isSpot(policy *decision.Policy, key string) (e v1.NodeSelectorRequirement, err error) {
	e.Key = key
	switch values, byPresence := policy.ValuesOf(key, decision.Spot); {
	case byPresence:
		e.Operator = v1.NodeSelectorOpExists
	case len(values) > 0:
		e.Operator, e.Values = v1.NodeSelectorOpIn, values
	default:
		err = errors.New(`expected a capacity label with values that mean spot, or "" if no pod shall require spot`)
	}
	return e, err
}

// notSpot returns the expression that matches nodes that are not spot according to the label key.
func notSpot(policy *decision.Policy, key string) (e v1.NodeSelectorRequirement, err error) {
	e.Key = key
	spot, byPresence := policy.ValuesOf(key, decision.Spot)
	onDemand, _ := policy.ValuesOf(key, decision.OnDemand)
	switch {
	case policy.UnlabeledNodes == decision.Spot && len(onDemand) == 0:
		err = errors.New("expected a capacity label with values that mean on-demand, because unlabeledNodes is Spot")
	case policy.UnlabeledNodes == decision.Spot: // a node without the label counts as spot, so the label must exist
		e.Operator, e.Values = v1.NodeSelectorOpIn, onDemand
	case byPresence:
		e.Operator = v1.NodeSelectorOpDoesNotExist
	case len(spot) > 0:
		e.Operator, e.Values = v1.NodeSelectorOpNotIn, spot
	default:
		err = errors.New("expected a capacity label whose values or whose presence mean spot")
	}
	return e, err
}

// ForNodes returns the expressions for pods whose scheduler knows only their affinity. They exclude
// every spot node in nodes, and not only nodes with a label of l. hidden is a spot node that
// no expression excludes; nil if there is none.
//
// It adds a label only if nodes have no other one. Karpenter invents a value for an added
// label that it does not know. The policy ignores such a value beside Karpenter's own label.
func (l *Labels) ForNodes(policy *decision.Policy, nodes []*snapshot.Node) (derived *Labels, hidden *v1.Node) {
	derived = &Labels{notSpot: l.notSpot, spot: l.spot}
	byType := map[decision.CapacityType][]*v1.Node{}
	for _, n := range nodes {
		if capacity := n.Facts.Capacity; capacity.Labeled() {
			byType[capacity.Type] = append(byType[capacity.Type], n.Node)
		}
	}
	onDemandNodes, spotNodes := byType[decision.OnDemand], byType[decision.Spot]
	keys := append(policy.CapacityKeys(), spot.CapacityLabel)
	if policy.UnlabeledNodes != decision.Spot {
		derived.notSpot = append(slices.Clone(l.notSpot), l.ofOnDemand(policy, keys, nodes)...)
		left := matching(derived.notSpot, spotNodes)
		for _, key := range keys {
			e, err := notSpot(policy, key)
			if err != nil || len(left) == 0 {
				continue
			}
			with := append(slices.Clone(derived.notSpot), e)
			if still := matching(with, spotNodes); len(still) < len(left) {
				derived.notSpot, left = with, still
			}
		}
		derived.notSpot = withoutValues(derived.notSpot, policy, keys, left)
	} else if len(onDemandNodes) > 0 && len(matching(l.notSpot, onDemandNodes)) == 0 { // one label must have a known value
		derived.notSpot = mostMatching(policy, keys, onDemandNodes)
	}
	if left := matching(derived.notSpot, spotNodes); len(left) > 0 {
		hidden = left[0]
	}
	if len(l.spot) > 0 && len(spotNodes) > 0 {
		derived.spot = l.spotLabels(policy, keys, spotNodes)
	}
	return derived, hidden
}

// spotLabels returns the expressions in l.spot and those for other labels of the spot nodes. Most
// nodes match the first one. It returns none if no node matches any.
func (l *Labels) spotLabels(policy *decision.Policy, keys []string, nodes []*v1.Node) []v1.NodeSelectorRequirement {
	all := slices.Clone(l.spot)
	for _, node := range nodes {
		if slices.ContainsFunc(anyOf(all), func(term v1.NodeSelectorTerm) bool { return admits(term.MatchExpressions, node) }) {
			continue
		}
		for _, key := range keys {
			if e, err := isSpot(policy, key); err == nil && admits([]v1.NodeSelectorRequirement{e}, node) {
				all = append(all, e)
				break
			}
		}
	}
	if most := sortByNodes(all, nodes); most == 0 {
		return nil
	}
	return all
}

// sortByNodes sorts expressions: most nodes match the first one. It returns how many do.
func sortByNodes(all []v1.NodeSelectorRequirement, nodes []*v1.Node) (most int) {
	counts := map[string]int{}
	for _, e := range all {
		counts[e.Key] = len(matching([]v1.NodeSelectorRequirement{e}, nodes))
	}
	slices.SortStableFunc(all, func(a, b v1.NodeSelectorRequirement) int { return counts[b.Key] - counts[a.Key] })
	return counts[all[0].Key]
}

// forPod returns the labels for a pod: if its own terms are extended, by an expression that spot
// nodes match which they admit.
func (l *Labels) forPod(pod *v1.Pod, nodes []*snapshot.Node) *Labels {
	if len(l.spot) < 2 || workload.NodeTerms(pod) > workload.MaxTerms ||
		nodeAffinity(pod.Spec.Affinity).RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return l
	}
	var admitted []*v1.Node
	own := workload.NewConstraints(pod, nil)
	for _, n := range nodes {
		if n.Facts.Capacity.Type == decision.Spot && own.Matches(n.Node) {
			admitted = append(admitted, n.Node)
		}
	}
	spot := slices.Clone(l.spot)
	sortByNodes(spot, admitted)
	return &Labels{notSpot: l.notSpot, spot: spot}
}

// allOf returns the terms that a node matches if it matches all expressions.
func allOf(expressions []v1.NodeSelectorRequirement) []v1.NodeSelectorTerm {
	return []v1.NodeSelectorTerm{{MatchExpressions: expressions}}
}

// anyOf returns the terms that a node matches if it matches one of the expressions.
func anyOf(expressions []v1.NodeSelectorRequirement) (terms []v1.NodeSelectorTerm) {
	for i := range expressions {
		terms = append(terms, allOf(expressions[i:i+1:i+1])...)
	}
	return terms
}

// ofOnDemand returns expressions with the labels of on-demand nodes, whose provisioner may later
// start its first spot node. It returns none if a node has a label of l: then the provisioner of
// that node may invent a value for another label.
func (l *Labels) ofOnDemand(policy *decision.Policy, keys []string, nodes []*snapshot.Node) (added []v1.NodeSelectorRequirement) {
	for _, n := range nodes {
		if slices.ContainsFunc(l.notSpot, func(e v1.NodeSelectorRequirement) bool { _, has := n.Labels[e.Key]; return has }) {
			return nil
		}
	}
	for _, key := range keys {
		e, err := notSpot(policy, key)
		if err == nil && slices.ContainsFunc(nodes, func(n *snapshot.Node) bool {
			meaning, known := policy.LabelMeaning(key, n.Labels[key])
			return known && meaning == decision.OnDemand
		}) {
			added = append(added, e)
		}
	}
	return added
}

// maxValues limits how many values withoutValues adds.
const maxValues = 10

// withoutValues returns the expressions with the values of the capacity labels of spot nodes
// excluded too: unknown values, because such nodes count as spot, and values that mean spot because
// they are not in a list. Without it, one node with a misspelled label would hide all floors.
func withoutValues(
	expressions []v1.NodeSelectorRequirement, policy *decision.Policy, keys []string, nodes []*v1.Node,
) []v1.NodeSelectorRequirement {
	values := map[string]sets.Set[string]{}
	for _, node := range nodes {
		marks := policy.UnknownLabels(node.Labels)
		for _, key := range keys {
			value, ok := node.Labels[key]
			if meaning, known := policy.LabelMeaning(key, value); ok && known && meaning == decision.Spot {
				marks = append(marks, key)
			}
		}
		for _, key := range marks {
			if values[key] == nil {
				values[key] = sets.New[string]()
			}
			values[key].Insert(node.Labels[key])
		}
	}
	result, left := slices.Clone(expressions), maxValues
	for _, key := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(result, func(e v1.NodeSelectorRequirement) bool { return e.Key == key && e.Operator == v1.NodeSelectorOpNotIn })
		if i >= 0 {
			values[key].Delete(result[i].Values...)
		}
		added := sets.List(values[key])
		added = added[:min(len(added), left)]
		left -= len(added)
		switch {
		case len(added) == 0:
		case i >= 0:
			result[i].Values = append(slices.Clone(result[i].Values), added...)
		default:
			result = append(result, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpNotIn, Values: added})
		}
	}
	return result
}

// HiddenNode returns a spot node that the affinity of pods that keep their scheduler cannot
// exclude; nil if there is none, or if the configured keys are invalid.
func HiddenNode(policy *decision.Policy, keys []string, nodes []*snapshot.Node) (hidden *v1.Node) {
	if labels, err := NewLabels(policy, keys, ""); err == nil {
		_, hidden = labels.ForNodes(policy, nodes)
	}
	return hidden
}

// mostMatching returns the expression of the key by which most nodes are not spot; none if no node
// is by any.
func mostMatching(policy *decision.Policy, keys []string, nodes []*v1.Node) (best []v1.NodeSelectorRequirement) {
	most := 0
	for _, key := range keys {
		e, err := notSpot(policy, key)
		if n := len(matching([]v1.NodeSelectorRequirement{e}, nodes)); err == nil && n > most {
			most, best = n, []v1.NodeSelectorRequirement{e}
		}
	}
	return best
}

func matching(expressions []v1.NodeSelectorRequirement, nodes []*v1.Node) (matched []*v1.Node) {
	for _, node := range nodes {
		if admits(expressions, node) {
			matched = append(matched, node)
		}
	}
	return matched
}

func admits(expressions []v1.NodeSelectorRequirement, node *v1.Node) bool {
	selector := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: expressions}}}
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(selector).Match(node)
	return matches && err == nil
}

// Disagreement describes how the affinity of floors and the policy, according to which the node has
// this capacity, disagree about a node; empty if they agree.
func (l *Labels) Disagreement(node *v1.Node, capacity decision.Capacity) string {
	switch admits := admits(l.notSpot, node); {
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

// withRequired returns the node affinity with required terms, which are alternatives. If it already
// has terms, the API server allows only additions to them: each gets the expressions of the first
// alternative. withRequired skips expressions that a term already contains. It skips empty terms,
// which match no node, because the API server refuses to change them. The argument, which may be
// nil, is not modified.
func withRequired(affinity *v1.Affinity, required []v1.NodeSelectorTerm) *v1.NodeAffinity {
	result := nodeAffinity(affinity)
	if result.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		result.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: required}
		return result
	}
	terms := result.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		term := &terms[i]
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		for _, e := range required[0].MatchExpressions {
			if !slices.ContainsFunc(term.MatchExpressions,
				func(has v1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(has, e) }) {
				term.MatchExpressions = append(term.MatchExpressions, e)
			}
		}
	}
	return result
}

// maxWeight is the largest weight that the API server accepts, and maxTerms how many terms a
// preference of the controller has at most: a user chooses how many preferences a pod has.
const maxWeight, maxTerms = 100, 10

// withPreferred returns the node affinity with a preference for each of the terms added, which has
// a larger weight than the sum of the pod's own preferences: otherwise replicas start on the other
// capacity type, and the controller has to move them. affinity, which may be nil, is not modified.
func withPreferred(affinity *v1.Affinity, terms []v1.NodeSelectorTerm) *v1.NodeAffinity {
	result := nodeAffinity(affinity)
	preferred := &result.PreferredDuringSchedulingIgnoredDuringExecution
	left := int32(1)
	for i := range *preferred {
		left += (*preferred)[i].Weight
	}
	for ours := 0; left > 0 && ours < maxTerms; ours++ {
		for _, term := range terms {
			*preferred = append(*preferred, v1.PreferredSchedulingTerm{Weight: min(left, maxWeight), Preference: term})
		}
		left -= maxWeight
	}
	return result
}
