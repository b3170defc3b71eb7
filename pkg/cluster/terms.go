package cluster

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// terms are the required affinity, anti-affinity and topology spread of a class of pods. nil: there
// are none. They mean what they mean to the scheduler's plugins InterPodAffinity and
// PodTopologySpread, except that the labels of namespaces are not known: an affinity that selects
// namespaces by label never rejects a node, and an anti-affinity that does so sees only the
// namespaces that it names.
type terms struct {
	// near has the affinity; nil: none that can be judged. nearby counts the pods that match all of
	// it, by the topology key of each term.
	near   []fwk.AffinityTerm
	nearby []*tally
	// attractsItself: the pods of the class match their own affinity.
	attractsItself bool
	// repellers count the pods that match a term of the anti-affinity.
	repellers []*tally
	spread    []*spread
}

// spread is one hard topology spread constraint.
type spread struct {
	*v1.TopologySpreadConstraint
	selector labels.Selector
	self     int // 1 if the pod itself matches
	pods     *tally
}

// newTerms returns the terms of p.
func (c *changes) newTerms(p *Pod) *terms {
	t := &terms{spread: c.newSpread(p)}
	if affinity := p.Spec.Affinity; affinity != nil {
		near, apart := fwk.GetPodAffinityTerms(affinity), fwk.GetPodAntiAffinityTerms(affinity)
		if !slices.ContainsFunc(near, selectsNamespaces) {
			t.near, _ = fwk.GetAffinityTerms(p.Pod, near)
		}
		t.attractsItself = t.isNear(p)
		for i := range t.near {
			key := tallyKey{pods: affinityPods(t.near), topologyKey: t.near[i].TopologyKey}
			t.nearby = append(t.nearby, c.tally(key, c.index.affinityScopes(&t.near[0]), t.isNear))
		}
		terms, _ := fwk.GetAffinityTerms(p.Pod, apart)
		for i := range terms {
			term := &terms[i]
			key := tallyKey{pods: affinityPods(terms[i : i+1]), topologyKey: term.TopologyKey}
			t.repellers = append(t.repellers, c.tally(key, c.index.affinityScopes(term), func(p *Pod) bool { return term.Matches(p.Pod, nil) }))
		}
	}
	if len(t.nearby)+len(t.repellers)+len(t.spread) == 0 {
		return nil
	}
	return t
}

// selectsNamespaces reports whether a term selects namespaces by their labels; an empty selector
// selects all.
func selectsNamespaces(term v1.PodAffinityTerm) bool {
	return term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) > 0
}

// newSpread returns the hard topology spread constraints of p.
func (c *changes) newSpread(p *Pod) (all []*spread) {
	var keys []string
	for i := range p.Spec.TopologySpreadConstraints {
		constraint := &p.Spec.TopologySpreadConstraints[i]
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		// The scheduler counts no pods for an empty selector, so it never keeps one off.
		if constraint.WhenUnsatisfiable != v1.DoNotSchedule || err != nil || selector.Empty() {
			continue
		}
		for _, key := range constraint.MatchLabelKeys {
			if value, ok := p.Labels[key]; ok {
				selector = selector.DeepCopySelector()
				same, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
				selector = selector.Add(same...)
			}
		}
		s := &spread{TopologySpreadConstraint: constraint, selector: selector}
		if selector.Matches(labels.Set(p.Labels)) {
			s.self = 1
		}
		all, keys = append(all, s), append(keys, constraint.TopologyKey)
	}
	for _, s := range all {
		key := tallyKey{
			pods: spreadPods(p.Namespace, s.selector), topologyKey: s.TopologyKey,
			eligible: c.index.eligibility(p, s.TopologySpreadConstraint, keys),
		}
		s.pods = c.tally(key, []scope{c.index.scope(p.Namespace, s.selector)}, func(other *Pod) bool {
			// Pods that are being deleted do not count.
			return other.Namespace == p.Namespace && other.DeletionTimestamp == nil && s.selector.Matches(labels.Set(other.Labels))
		})
	}
	return all
}

// concern reports whether the terms are also those of another pod, which has the same affinity and
// constraints as pod, of which they are. The labels of the two may differ: those of a StatefulSet
// or an Indexed Job always do.
func (t *terms) concern(pod, other *Pod) bool {
	if t == nil {
		return true
	}
	if len(t.near) > 0 && t.isNear(other) != t.attractsItself {
		return false
	}
	for _, s := range t.spread {
		if (s.self == 1) != s.selector.Matches(labels.Set(other.Labels)) {
			return false
		}
		for _, key := range s.MatchLabelKeys {
			a, had := pod.Labels[key]
			if b, has := other.Labels[key]; a != b || had != has {
				return false
			}
		}
	}
	return true
}

// isNear reports whether p matches all terms of the affinity.
func (t *terms) isNear(p *Pod) bool {
	for i := range t.near {
		if !t.near[i].Matches(p.Pod, nil) {
			return false
		}
	}
	return true
}

// allow reports whether one more pod may come to the node of that number.
func (t *terms) allow(node int) bool {
	return t == nil || t.nearEnough(node) && t.farEnough(node) && t.evenEnough(node)
}

func (t *terms) nearEnough(node int) bool {
	found, any := true, false
	for _, pods := range t.nearby {
		domain := pods.domains[node]
		if domain == noDomain {
			return false
		}
		found, any = found && pods.n[domain] > 0, any || len(pods.n) > 0
	}
	// The first of those that want to be near each other may be placed anywhere.
	return found || !any && t.attractsItself
}

func (t *terms) farEnough(node int) bool {
	for _, pods := range t.repellers {
		if domain := pods.domains[node]; domain != noDomain && pods.n[domain] > 0 {
			return false
		}
	}
	return true
}

func (t *terms) evenEnough(node int) bool {
	for _, s := range t.spread {
		domain := s.pods.domains[node]
		if domain == noDomain || s.pods.n[domain]+s.self-s.pods.fewest(int(ptr.Deref(s.MinDomains, 1))) > int(s.MaxSkew) {
			return false
		}
	}
	return true
}
