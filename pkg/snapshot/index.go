package snapshot

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Index finds the nodes and pods of one Snapshot by their labels. It caches every result, because
// thousands of workloads need the same ones. It is not safe for concurrent use.
type Index struct {
	snapshot   *Snapshot
	Numbers    map[*Node]int // positions in Snapshot.Nodes
	topologies map[string]Topology
	eligible   map[string]*Eligibility
	labelled   map[labelKey]map[string][]*Pod
	budgets    map[string]*workload.Selectors[*policyv1.PodDisruptionBudget] // by namespace
	// antiAffinities are the terms by the namespace that they apply to, and users the pods that use
	// a volume; nil until they are needed.
	antiAffinities map[string][]*AntiAffinity
	users          map[*v1.PersistentVolume][]*Pod
}

// labelKey is a label key in the pods of a namespace. An empty namespace means all namespaces.
type labelKey struct{ namespace, key string }

// Index returns the index of s, which is built on first use.
func (s *Snapshot) Index() *Index {
	if s.index != nil {
		return s.index
	}
	x := &Index{
		snapshot: s, Numbers: make(map[*Node]int, len(s.Nodes)), topologies: map[string]Topology{},
		eligible: map[string]*Eligibility{}, labelled: map[labelKey]map[string][]*Pod{},
		budgets: map[string]*workload.Selectors[*policyv1.PodDisruptionBudget]{},
	}
	for i, node := range s.Nodes {
		x.Numbers[node] = i
	}
	s.index = x
	return x
}

// BudgetsOf returns the PodDisruptionBudgets that select the pod, by name.
func (s *Snapshot) BudgetsOf(p *Pod) []*policyv1.PodDisruptionBudget {
	all := s.Index().budgets
	if all[p.Namespace] == nil {
		all[p.Namespace] = &workload.Selectors[*policyv1.PodDisruptionBudget]{}
		for _, budget := range s.Budgets[p.Namespace] {
			all[p.Namespace].Add(workload.Selector(budget.Spec.Selector), budget)
		}
	}
	return all[p.Namespace].Of(p.Labels)
}

// Topology maps the number of each node to its domain: NoDomain, or a number for each value of the
// topology key.
type Topology []int32

// NoDomain is the entry in a Topology of a node without the label.
const NoDomain = -1

// Topology returns the domains of all nodes for a topology key.
func (x *Index) Topology(key string) Topology {
	if cached, ok := x.topologies[key]; ok {
		return cached
	}
	t := make(Topology, len(x.snapshot.Nodes))
	domains := map[string]int32{}
	for i, node := range x.snapshot.Nodes {
		t[i] = NoDomain
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

// Eligibility contains the nodes, by number, that count for a topology spread constraint, and the
// number of their domains.
type Eligibility struct {
	Nodes   []bool
	Domains int
}

// Eligibility returns the eligibility for a constraint of p. keys are the topology keys of all hard
// constraints of p. A node that lacks such a label counts for no constraint.
func (x *Index) Eligibility(p *Pod, c *v1.TopologySpreadConstraint, keys []string) *Eligibility {
	honorsAffinity := ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor
	honorsTaints := ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyHonor
	inputs := []any{c.TopologyKey, keys, honorsAffinity, honorsTaints} // all inputs of the result
	if honorsAffinity {
		affinity := ptr.Deref(ptr.Deref(p.Spec.Affinity, v1.Affinity{}).NodeAffinity, v1.NodeAffinity{})
		inputs = append(inputs, p.Spec.NodeSelector, affinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if honorsTaints {
		inputs = append(inputs, p.Spec.Tolerations)
	}
	text, _ := json.Marshal(inputs) // these types have no value that cannot be encoded
	id := string(text)
	if cached := x.eligible[id]; cached != nil {
		return cached
	}
	e := &Eligibility{Nodes: make([]bool, len(x.snapshot.Nodes))}
	domains, seen := x.Topology(c.TopologyKey), map[int32]bool{}
	constraints := workload.NewConstraints(p.Pod, nil)
	for i, node := range x.snapshot.Nodes {
		if slices.ContainsFunc(keys, func(key string) bool { _, has := node.Labels[key]; return !has }) {
			continue
		}
		if honorsAffinity && !constraints.Matches(node.Node) ||
			honorsTaints && constraints.UntoleratedOf(node.Spec.Taints, workload.ExcludesPods) != "" {
			continue
		}
		e.Nodes[i], seen[domains[i]] = true, true
	}
	e.Domains = len(seen)
	x.eligible[id] = e
	return e
}

// Scope limits which pods a selector can match: the pods of a namespace (all if empty) with one
// value of a label (any if the key is empty).
type Scope struct{ namespace, key, value string }

// Scope returns the smallest scope that contains all pods that the selector matches in the
// namespace.
func (x *Index) Scope(namespace string, selector labels.Selector) Scope {
	best := Scope{namespace: namespace}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				if s := (Scope{namespace, r.Key(), values[0]}); len(x.Pods(s)) < len(x.Pods(best)) {
					best = s
				}
			}
		}
	}
	return best
}

// ScopesOf returns all scopes that contain p.
func ScopesOf(p *Pod) []Scope {
	scopes := make([]Scope, 0, 2+2*len(p.Labels))
	for _, namespace := range []string{p.Namespace, ""} {
		scopes = append(scopes, Scope{namespace: namespace})
		for key, value := range p.Labels {
			scopes = append(scopes, Scope{namespace, key, value})
		}
	}
	return scopes
}

// Pods returns the pods of a scope.
func (x *Index) Pods(s Scope) []*Pod {
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
func (x *Index) podsIn(namespace string) []*Pod {
	pods := x.snapshot.Pods
	if namespace == "" {
		return pods
	}
	start := sort.Search(len(pods), func(i int) bool { return strings.Compare(pods[i].Namespace, namespace) >= 0 })
	end := start + sort.Search(len(pods)-start, func(i int) bool { return pods[start+i].Namespace != namespace })
	return pods[start:end]
}
