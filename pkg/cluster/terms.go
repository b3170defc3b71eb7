package cluster

import (
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// change is a pod that came to a node in the simulation (by 1), or left it (by -1).
type change struct {
	pod  *Pod
	node *Node
	by   int
}

// domain is one value of a topology key.
type domain struct{ key, value string }

// terms are the required affinity, anti-affinity and topology spread of a class of pods, with how many other pods each of them concerns in
// each domain. nil: there are none. They are those of the scheduler's plugins InterPodAffinity and PodTopologySpread; but which namespaces
// a selector means is not known. So an affinity that has one is not held against a node, and an anti-affinity that has one sees only the
// namespaces that it names.
type terms struct {
	pod *Pod
	// near has the affinity; nil: none that could be judged. nearby counts the pods that match all its terms.
	near   []fwk.AffinityTerm
	nearby map[domain]int
	// apart has the anti-affinity, and repellers counts the pods that match a term, by its index.
	apart     []fwk.AffinityTerm
	repellers []map[string]int
	spread    []*spread
	// seen is how many of Room.changes are counted.
	seen int
}

// spread is one hard topology spread constraint.
type spread struct {
	v1.TopologySpreadConstraint
	selector labels.Selector
	self     int // 1 if the pod itself matches
	// eligible are the nodes that count; n has the matching pods of each of their domains.
	eligible map[*Node]bool
	n        map[string]int
	// least is the smallest of n, if it is known.
	least      int
	leastKnown bool
}

// newTerms returns the terms of p, with the pods of the Snapshot counted.
func (r *Room) newTerms(p *Pod) *terms {
	t := &terms{pod: p, nearby: map[domain]int{}}
	namespaces := sets.New[string]()
	all := false
	if affinity := p.Spec.Affinity; affinity != nil {
		near, apart := fwk.GetPodAffinityTerms(affinity), fwk.GetPodAntiAffinityTerms(affinity)
		if !slices.ContainsFunc(near, selectsNamespaces) {
			t.near, _ = fwk.GetAffinityTerms(p.Pod, near)
		}
		t.apart, _ = fwk.GetAffinityTerms(p.Pod, apart)
		for _, term := range slices.Concat(t.near, t.apart) {
			namespaces = namespaces.Union(term.Namespaces)
			all = all || term.NamespaceSelector.Empty()
		}
	}
	t.repellers = make([]map[string]int, len(t.apart))
	for i := range t.repellers {
		t.repellers[i] = map[string]int{}
	}
	if t.spread = r.newSpread(p); len(t.spread) > 0 {
		namespaces.Insert(p.Namespace)
	}
	if len(t.near)+len(t.apart)+len(t.spread) == 0 {
		return nil
	}
	if all {
		t.count(r.snapshot.Pods)
		return t
	}
	for namespace := range namespaces {
		t.count(r.podsIn(namespace))
	}
	return t
}

// selectsNamespaces reports whether a term means namespaces by their labels; an empty selector means all.
func selectsNamespaces(term v1.PodAffinityTerm) bool {
	return term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) > 0
}

// newSpread returns the hard topology spread constraints of p, with all their domains and no pods.
func (r *Room) newSpread(p *Pod) (all []*spread) {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		// The scheduler counts no pods for an empty selector, so it never keeps one off.
		if c.WhenUnsatisfiable != v1.DoNotSchedule || err != nil || selector.Empty() {
			continue
		}
		for _, key := range c.MatchLabelKeys {
			if value, ok := p.Labels[key]; ok {
				selector = selector.DeepCopySelector()
				same, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
				selector = selector.Add(same...)
			}
		}
		s := &spread{TopologySpreadConstraint: *c, selector: selector, eligible: map[*Node]bool{}, n: map[string]int{}}
		if selector.Matches(labels.Set(p.Labels)) {
			s.self = 1
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
	for _, node := range r.snapshot.Nodes {
		if slices.ContainsFunc(all, func(s *spread) bool { _, has := node.Labels[s.TopologyKey]; return !has }) {
			continue
		}
		matches, _ := affinity.Match(node.Node)
		_, tainted := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, p.Spec.Tolerations, keepsOff, true)
		for _, s := range all {
			if (matches || ptr.Deref(s.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) != v1.NodeInclusionPolicyHonor) &&
				(!tainted || ptr.Deref(s.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) != v1.NodeInclusionPolicyHonor) {
				s.eligible[node] = true
				s.n[node.Labels[s.TopologyKey]] += 0
			}
		}
	}
	return all
}

// podsIn returns the pods of a namespace.
func (r *Room) podsIn(namespace string) []*Pod {
	pods := r.snapshot.Pods
	start := sort.Search(len(pods), func(i int) bool { return strings.Compare(pods[i].Namespace, namespace) >= 0 })
	end := start + sort.Search(len(pods)-start, func(i int) bool { return pods[start+i].Namespace != namespace })
	return pods[start:end]
}

func (t *terms) count(pods []*Pod) {
	for _, p := range pods {
		if p.Node != nil {
			t.apply(p, p.Node, 1)
		}
	}
}

// catchUp counts what has changed since the last time.
func (t *terms) catchUp(changes []change) {
	if t == nil {
		return
	}
	for _, c := range changes[t.seen:] {
		t.apply(c.pod, c.node, c.by)
	}
	t.seen = len(changes)
}

// apply counts a pod that came to node (by 1), or left it (by -1).
func (t *terms) apply(p *Pod, node *Node, by int) {
	if t == nil {
		return
	}
	if len(t.near) > 0 && t.isNear(p) {
		for i := range t.near {
			if value, ok := node.Labels[t.near[i].TopologyKey]; ok {
				t.nearby[domain{t.near[i].TopologyKey, value}] += by
			}
		}
	}
	for i := range t.apart {
		if value, ok := node.Labels[t.apart[i].TopologyKey]; ok && t.apart[i].Matches(p.Pod, nil) {
			t.repellers[i][value] += by
		}
	}
	if p.Namespace != t.pod.Namespace || p.DeletionTimestamp != nil {
		return // spread does not count what is leaving
	}
	for _, s := range t.spread {
		if s.eligible[node] && s.selector.Matches(labels.Set(p.Labels)) {
			s.n[node.Labels[s.TopologyKey]] += by
			s.leastKnown = false
		}
	}
}

// isNear reports whether p is one of those that the affinity wants to be near to.
func (t *terms) isNear(p *Pod) bool {
	for i := range t.near {
		if !t.near[i].Matches(p.Pod, nil) {
			return false
		}
	}
	return true
}

// allow reports whether one more pod may come to node.
func (t *terms) allow(node *Node) bool {
	return t == nil || t.nearEnough(node) && t.farEnough(node) && t.evenEnough(node)
}

func (t *terms) nearEnough(node *Node) bool {
	found := true
	for i := range t.near {
		value, ok := node.Labels[t.near[i].TopologyKey]
		if !ok {
			return false
		}
		found = found && t.nearby[domain{t.near[i].TopologyKey, value}] > 0
	}
	if found {
		return true
	}
	// The first of those that want to be near each other may go anywhere.
	for _, n := range t.nearby {
		if n > 0 {
			return false
		}
	}
	return t.isNear(t.pod)
}

func (t *terms) farEnough(node *Node) bool {
	for i := range t.apart {
		if value, ok := node.Labels[t.apart[i].TopologyKey]; ok && t.repellers[i][value] > 0 {
			return false
		}
	}
	return true
}

func (t *terms) evenEnough(node *Node) bool {
	for _, s := range t.spread {
		value, ok := node.Labels[s.TopologyKey]
		if !ok || s.n[value]+s.self-s.fewest() > int(s.MaxSkew) {
			return false
		}
	}
	return true
}

// fewest returns how many matching pods the domain with the fewest has; 0 while there are fewer domains than there should be.
func (s *spread) fewest() int {
	if len(s.n) < int(ptr.Deref(s.MinDomains, 1)) {
		return 0
	}
	if !s.leastKnown {
		first := true
		for _, n := range s.n {
			if first || n < s.least {
				s.least, first = n, false
			}
		}
		s.leastKnown = true
	}
	return s.least
}
