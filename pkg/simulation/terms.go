package simulation

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// terms contains what the required affinity, anti-affinity and topology spread of a class of pods,
// the anti-affinity of other pods, and the volumes that they use demand. nil means nothing. The
// semantics are the same as in the scheduler's plugins InterPodAffinity and PodTopologySpread,
// except that of the labels of namespaces only their name is known. An affinity that selects
// namespaces by label therefore never rejects a node. For an anti-affinity see snapshot.MayMatch.
type terms struct {
	// affinity contains the affinity terms, or nil if they cannot be evaluated. affinityCounts
	// counts the pods that match all the terms, by the topology key of each term.
	affinity       []fwk.AffinityTerm
	affinityCounts []*tally
	// selfAffine reports whether the pods of the class match their own affinity.
	selfAffine bool
	// antiAffinityCounts counts, for each term, the pods that match that anti-affinity term.
	antiAffinityCounts []*tally
	spread             []*spread
	// repelling counts, for each anti-affinity term of any pod that matches the pods of the class,
	// the pods with that term. volumeNodes are as in snapshot.Index.
	repelling   []*tally
	volumeNodes []int
}

type spread struct {
	*v1.TopologySpreadConstraint
	selector labels.Selector
	self     int // 1 if the pod itself matches, else 0
	pods     *tally
}

func (c *changes) newTerms(p *snapshot.Pod) *terms {
	t := &terms{spread: c.newSpread(p), volumeNodes: c.index.VolumeNodes(p)}
	for _, one := range c.index.AntiAffinities(p) {
		key := tallyKey{pods: fmt.Sprintf("%p", one), topologyKey: one.TopologyKey}
		t.repelling = append(t.repelling,
			c.tally(key, []snapshot.Scope{c.index.Scope(one.Namespace, labels.Everything())}, func(p *snapshot.Pod) bool { return one.Pods[p] }))
	}
	if affinity := p.Spec.Affinity; affinity != nil {
		affinityTerms, antiAffinityTerms := fwk.GetPodAffinityTerms(affinity), fwk.GetPodAntiAffinityTerms(affinity)
		if !slices.ContainsFunc(affinityTerms, selectsNamespaces) {
			t.affinity, _ = fwk.GetAffinityTerms(p.Pod, affinityTerms)
		}
		t.selfAffine = t.matchesAffinity(p)
		for i := range t.affinity {
			key := tallyKey{pods: affinityPods(t.affinity), topologyKey: t.affinity[i].TopologyKey}
			t.affinityCounts = append(t.affinityCounts, c.tally(key, affinityScopes(c.index, &t.affinity[0]), t.matchesAffinity))
		}
		terms, _ := fwk.GetAffinityTerms(p.Pod, antiAffinityTerms)
		for i := range terms {
			term := &terms[i]
			key := tallyKey{pods: affinityPods(terms[i : i+1]), topologyKey: term.TopologyKey}
			t.antiAffinityCounts = append(t.antiAffinityCounts,
				c.tally(key, affinityScopes(c.index, term), func(p *snapshot.Pod) bool { return snapshot.MayMatch(term, p.Pod) }))
		}
	}
	if len(t.affinityCounts)+len(t.antiAffinityCounts)+len(t.spread)+len(t.repelling)+len(t.volumeNodes) == 0 {
		return nil
	}
	return t
}

// selectsNamespaces reports whether a term selects namespaces by their labels. An empty selector
// selects all namespaces.
func selectsNamespaces(term v1.PodAffinityTerm) bool {
	return term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) > 0
}

func (c *changes) newSpread(p *snapshot.Pod) (all []*spread) {
	var keys []string
	for i := range p.Spec.TopologySpreadConstraints {
		constraint := &p.Spec.TopologySpreadConstraints[i]
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		// The scheduler counts no pods for an empty selector, so the constraint never rejects a
		// node.
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
			pods: p.Namespace + "/" + s.selector.String(), topologyKey: s.TopologyKey,
			eligible: c.index.Eligibility(p, s.TopologySpreadConstraint, keys),
		}
		s.pods = c.tally(key, []snapshot.Scope{c.index.Scope(p.Namespace, s.selector)}, func(other *snapshot.Pod) bool {
			// Terminating pods do not count.
			return other.Namespace == p.Namespace && other.DeletionTimestamp == nil && s.selector.Matches(labels.Set(other.Labels))
		})
	}
	return all
}

// applyTo reports whether the terms are the same for other, a pod with the same affinity and
// constraints as pod, whose terms these are. The labels of the two may differ. In a StatefulSet or
// an Indexed Job they always do.
func (t *terms) applyTo(pod, other *snapshot.Pod) bool {
	if t == nil {
		return true
	}
	if len(t.affinity) > 0 && t.matchesAffinity(other) != t.selfAffine {
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

func (t *terms) matchesAffinity(p *snapshot.Pod) bool {
	for i := range t.affinity {
		if !t.affinity[i].Matches(p.Pod, nil) {
			return false
		}
	}
	return true
}

// allows reports whether the terms allow one more pod on the node with that number.
func (t *terms) allows(node int) bool {
	return t == nil || t.attaches(node) && t.satisfiesAffinity(node) && t.satisfiesSpread(node) &&
		!anyInDomain(t.antiAffinityCounts, node) && !anyInDomain(t.repelling, node)
}

// attaches reports whether the other users of the pod's volumes permit to attach them to the node.
func (t *terms) attaches(node int) bool {
	return !slices.ContainsFunc(t.volumeNodes, func(number int) bool { return number != node })
}

func (t *terms) satisfiesAffinity(node int) bool {
	found, any := true, false
	for _, pods := range t.affinityCounts {
		domain := pods.domains[node]
		if domain == snapshot.NoDomain {
			return false
		}
		found, any = found && pods.counts[domain] > 0, any || len(pods.counts) > 0
	}
	// The first pod of a self-affine group may be placed anywhere.
	return found || !any && t.selfAffine
}

// anyInDomain reports whether any of the tallies counts a pod in the topology domain of the node.
func anyInDomain(tallies []*tally, node int) bool {
	return slices.ContainsFunc(tallies, func(pods *tally) bool {
		domain := pods.domains[node]
		return domain != snapshot.NoDomain && pods.counts[domain] > 0
	})
}

func (t *terms) satisfiesSpread(node int) bool {
	for _, s := range t.spread {
		domain := s.pods.domains[node]
		if domain == snapshot.NoDomain || s.pods.counts[domain]+s.self-s.pods.fewest(int(ptr.Deref(s.MinDomains, 1))) > int(s.MaxSkew) {
			return false
		}
	}
	return true
}

// Excessive reports whether the pod has so many terms that a search for its room would take too
// long for all other pods. Room does not search for such a pod.
func Excessive(p *snapshot.Pod) bool {
	n := workload.NodeTerms(p.Pod)
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		n += 1 + len(c.MatchLabelKeys) + workload.Terms(c.LabelSelector)
	}
	if a := p.Spec.Affinity; a != nil {
		for _, terms := range [][]v1.PodAffinityTerm{fwk.GetPodAffinityTerms(a), fwk.GetPodAntiAffinityTerms(a)} {
			for i := range terms {
				n += 1 + len(terms[i].Namespaces) + workload.Terms(terms[i].LabelSelector) + workload.Terms(terms[i].NamespaceSelector)
			}
		}
	}
	return n > workload.MaxTerms
}
