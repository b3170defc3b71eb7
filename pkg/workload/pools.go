package workload

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// PoolNode returns an example of the nodes of a capacity type that an autoscaler may add from a
// pool, and that the constraints of the pod and of its volumes admit; nil if there is none. The
// size of nodes and the state of the pool do not matter. A nil policy has no capacity labels.
//
// A node has the labels that the pool requires, and the labels that every provider sets, such as
// its zone. A pool that requires no capacity type may add nodes of both.
func PoolNode(pool *providers.NodePool, policy *decision.Policy, pod *v1.Pod, volumes []*v1.PersistentVolume,
	capacity decision.CapacityType) *v1.Node {
	c := NewConstraints(pod, volumes)
	if NodeTerms(pod) > MaxTerms || c.UntoleratedOf(pool.Taints, ExcludesPods) != "" {
		return nil
	}
	for _, wanted := range alternatives(pod, volumes) {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: poolLabels(pool.Requirements, wanted, policy, capacity)}}
		if node.Labels != nil && c.Matches(node) && c.Reaches(node) {
			return node
		}
	}
	return nil
}

// alternatives returns lists of requirements. A node that satisfies one of the lists satisfies the
// node selector and affinity of the pod, and that of its volumes. There are at most MaxTerms: the
// first.
func alternatives(pod *v1.Pod, volumes []*v1.PersistentVolume) [][]v1.NodeSelectorRequirement {
	var selector []v1.NodeSelectorRequirement
	for key, value := range pod.Spec.NodeSelector {
		selector = append(selector, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}})
	}
	lists, terms := [][]v1.NodeSelectorRequirement{selector}, [][]v1.NodeSelectorTerm{requiredTerms(pod)}
	for _, pv := range volumes {
		if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
			terms = append(terms, a.Required.NodeSelectorTerms)
		}
	}
	for _, options := range terms {
		if len(options) == 0 {
			continue
		}
		var longer [][]v1.NodeSelectorRequirement
		for _, list := range lists {
			for i := range options {
				longer = append(longer, slices.Concat(list, options[i].MatchExpressions))
			}
		}
		lists = longer[:min(len(longer), MaxTerms)]
	}
	return lists
}

// poolLabels returns the labels of a node that satisfies the requirements of a pool and the wanted
// ones; nil if it finds none. The label of a requirement without values may have any value.
func poolLabels(pool, wanted []v1.NodeSelectorRequirement, policy *decision.Policy, capacity decision.CapacityType) map[string]string {
	all, isSet := map[string][]v1.NodeSelectorRequirement{}, map[string]bool{}
	for i, r := range slices.Concat(pool, wanted) {
		label := sameLabel(r.Key)
		all[label] = append(all[label], r)
		isSet[label] = isSet[label] || i < len(pool) || setByProviders(label)
	}
	labels := map[string]string{}
	for label, requirements := range all {
		values := []string{"any"}
		for _, r := range requirements {
			values = append(values, r.Values...)
			if number, err := strconv.Atoi(strings.Join(r.Values, "")); err == nil { // of Gt and Lt
				values = append(values, strconv.Itoa(number+1), strconv.Itoa(number-1))
			}
		}
		slices.Sort(values[1:]) // independent of the order of requirements
		at := -1
		if isSet[label] {
			at = slices.IndexFunc(values, func(value string) bool {
				means, known := decision.OnDemand, false
				if policy != nil {
					means, known = policy.LabelMeaning(label, value)
				}
				return (!known || means == capacity) && satisfies(requirements, value)
			})
		}
		if at < 0 {
			continue // the caller examines whether the label may be missing
		}
		for _, r := range requirements {
			labels[r.Key] = values[at]
		}
	}
	if missing := slices.ContainsFunc(pool, func(r v1.NodeSelectorRequirement) bool {
		_, has := labels[r.Key]
		return !has && r.Operator != v1.NodeSelectorOpDoesNotExist && r.Operator != v1.NodeSelectorOpNotIn
	}); missing {
		return nil
	}
	return labels
}

// satisfies reports whether a label with the value satisfies requirements of equal labels.
func satisfies(requirements []v1.NodeSelectorRequirement, value string) bool {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, r := range requirements {
		node.Labels[r.Key] = value
	}
	term := v1.NodeSelectorTerm{MatchExpressions: requirements}
	match, err := nodeaffinity.NewLazyErrorNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}).Match(node)
	return match && err == nil
}

// sameLabel returns the label of Kubernetes for another name of it. Volumes name the zone by a
// label of their driver.
func sameLabel(key string) string {
	domain, name, _ := strings.Cut(key, "/")
	if name == "zone" && strings.HasPrefix(domain, "topology.") || key == v1.LabelFailureDomainBetaZone {
		return v1.LabelTopologyZone
	}
	return key
}

// setByProviders reports whether every provider sets the label on new nodes, with a value that
// depends on the requirements of their pods. Karpenter calls such labels well-known.
func setByProviders(key string) bool {
	return slices.Contains([]string{v1.LabelInstanceTypeStable, v1.LabelArchStable, v1.LabelOSStable, v1.LabelWindowsBuild}, key) ||
		strings.HasPrefix(key, "topology.") || strings.HasPrefix(key, "karpenter.")
}
