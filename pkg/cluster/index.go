package cluster

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// index finds the nodes and pods of one Snapshot by their labels. It caches every result, because
// thousands of workloads need the same ones. It is not safe for concurrent use.
type index struct {
	snapshot   *Snapshot
	numbers    map[*Node]int // positions in Snapshot.Nodes
	topologies map[string]topology
	eligible   map[string]*eligibility
	labelled   map[labelKey]map[string][]*Pod
}

// labelKey is a label key in the pods of a namespace. An empty namespace means all namespaces.
type labelKey struct{ namespace, key string }

// indexOf returns the index of s.
func indexOf(s *Snapshot) *index {
	if s.index != nil {
		return s.index
	}
	x := &index{
		snapshot: s, numbers: make(map[*Node]int, len(s.Nodes)), topologies: map[string]topology{},
		eligible: map[string]*eligibility{}, labelled: map[labelKey]map[string][]*Pod{},
	}
	for i, node := range s.Nodes {
		x.numbers[node] = i
	}
	s.index = x
	return x
}

// topology maps the number of each node to its domain: noDomain, or a number for each value of the
// topology key.
type topology []int32

const noDomain = -1

func (x *index) topology(key string) topology {
	if cached, ok := x.topologies[key]; ok {
		return cached
	}
	t := make(topology, len(x.snapshot.Nodes))
	domains := map[string]int32{}
	for i, node := range x.snapshot.Nodes {
		t[i] = noDomain
		if value, ok := node.Labels[key]; ok {
			domain, seen := domains[value]
			if !seen {
				domain = int32(len(domains))
				domains[value] = domain
			}
			t[i] = domain
		}
	}
	x.topologies[key] = t
	return t
}

// eligibility contains the nodes, by number, that count for a topology spread constraint, and the
// number of their domains.
type eligibility struct {
	nodes   []bool
	domains int
}

// eligibility returns the eligibility for a constraint of p. keys are the topology keys of all hard
// constraints of p. A node that lacks such a label counts for no constraint.
func (x *index) eligibility(p *Pod, c *v1.TopologySpreadConstraint, keys []string) *eligibility {
	honorsAffinity := ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor
	honorsTaints := ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyHonor
	// All inputs of the result.
	var inputs struct {
		Key          string
		Keys         []string
		NodeSelector map[string]string
		Required     *v1.NodeSelector
		HonorsTaints bool
		Tolerations  []v1.Toleration
	}
	inputs.Key, inputs.Keys, inputs.HonorsTaints = c.TopologyKey, keys, honorsTaints
	if honorsAffinity {
		inputs.NodeSelector = p.Spec.NodeSelector
		if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			inputs.Required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
	}
	if honorsTaints {
		inputs.Tolerations = p.Spec.Tolerations
	}
	text, _ := json.Marshal(inputs) // these types have no value that cannot be encoded
	id := string(text)
	if cached := x.eligible[id]; cached != nil {
		return cached
	}
	e := &eligibility{nodes: make([]bool, len(x.snapshot.Nodes))}
	domains, seen := x.topology(c.TopologyKey), map[int32]bool{}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
	for i, node := range x.snapshot.Nodes {
		if slices.ContainsFunc(keys, func(key string) bool { _, has := node.Labels[key]; return !has }) {
			continue
		}
		if honorsAffinity {
			if matches, _ := affinity.Match(node.Node); !matches {
				continue
			}
		}
		if honorsTaints && len(node.Spec.Taints) > 0 {
			if _, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, p.Spec.Tolerations, excludesPods, true); untolerated {
				continue
			}
		}
		e.nodes[i], seen[domains[i]] = true, true
	}
	e.domains = len(seen)
	x.eligible[id] = e
	return e
}

// scope limits which pods a selector can match: the pods of a namespace (all if empty) with one
// value of a label (any if the key is empty).
type scope struct{ namespace, key, value string }

// scope returns the smallest scope that contains all pods that the selector matches in the
// namespace.
func (x *index) scope(namespace string, selector labels.Selector) scope {
	best := scope{namespace: namespace}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				if s := (scope{namespace, r.Key(), values[0]}); len(x.pods(s)) < len(x.pods(best)) {
					best = s
				}
			}
		}
	}
	return best
}

// scopesOf returns all scopes that contain p.
func scopesOf(p *Pod) []scope {
	scopes := make([]scope, 0, 2+2*len(p.Labels))
	for _, namespace := range []string{p.Namespace, ""} {
		scopes = append(scopes, scope{namespace: namespace})
		for key, value := range p.Labels {
			scopes = append(scopes, scope{namespace, key, value})
		}
	}
	return scopes
}

// pods returns the pods of a scope.
func (x *index) pods(s scope) []*Pod {
	if s.key == "" {
		return x.podsIn(s.namespace)
	}
	key := labelKey{s.namespace, s.key}
	byValue, cached := x.labelled[key]
	if !cached {
		byValue = map[string][]*Pod{}
		for _, p := range x.podsIn(s.namespace) {
			if value, ok := p.Labels[s.key]; ok {
				byValue[value] = append(byValue[value], p)
			}
		}
		x.labelled[key] = byValue
	}
	return byValue[s.value]
}

// podsIn returns the pods of a namespace, or all pods if it is empty.
func (x *index) podsIn(namespace string) []*Pod {
	pods := x.snapshot.Pods
	if namespace == "" {
		return pods
	}
	start := sort.Search(len(pods), func(i int) bool { return strings.Compare(pods[i].Namespace, namespace) >= 0 })
	end := start + sort.Search(len(pods)-start, func(i int) bool { return pods[start+i].Namespace != namespace })
	return pods[start:end]
}
