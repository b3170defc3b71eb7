package cluster

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
)

// tally counts the pods that a term concerns by their topology domain, in a simulation.
type tally struct {
	matches  func(*Pod) bool
	domains  topology
	eligible *eligibility // nil: pods on all nodes count
	// n has the domains that have such pods, and only those.
	n map[int32]int
	// least is the result of fewest, if it is known.
	least      int
	leastKnown bool
}

// tallyKey identifies a tally in a Room. Two with equal keys count the same pods.
type tallyKey struct {
	pods, topologyKey string
	eligible          *eligibility
}

// add counts by pods more like p on the node of that number.
func (t *tally) add(p *Pod, node, by int) {
	domain := t.domains[node]
	if domain == noDomain || t.eligible != nil && !t.eligible.nodes[node] || !t.matches(p) {
		return
	}
	t.leastKnown = false
	if t.n[domain] += by; t.n[domain] == 0 {
		delete(t.n, domain)
	}
}

// fewest returns how many pods the eligible domain with the fewest has; 0 while there are fewer
// than minDomains of them.
func (t *tally) fewest(minDomains int) int {
	if len(t.n) < t.eligible.domains || t.eligible.domains < minDomains || len(t.n) == 0 {
		return 0
	}
	if !t.leastKnown {
		t.least, t.leastKnown = slices.Min(slices.Collect(maps.Values(t.n))), true
	}
	return t.least
}

// changes are what a simulation has done with pods since its Snapshot, and the tallies that count
// them.
type changes struct {
	index   *index
	moved   map[*Pod][]change
	tallies map[tallyKey]*tally
	// interested are the tallies by the scopes whose pods they may count.
	interested map[scope][]*tally
}

// change is a pod that came to the node of that number (by 1), or left it (by -1).
type change struct{ node, by int }

func newChanges(x *index) *changes {
	return &changes{index: x, moved: map[*Pod][]change{}, tallies: map[tallyKey]*tally{}, interested: map[scope][]*tally{}}
}

// tally returns the tally of a key, in which the pods are counted as they are now. All pods that
// match are in one of the scopes, and in one only.
func (c *changes) tally(key tallyKey, scopes []scope, matches func(*Pod) bool) *tally {
	if known := c.tallies[key]; known != nil {
		return known
	}
	t := &tally{matches: matches, domains: c.index.topology(key.topologyKey), eligible: key.eligible, n: map[int32]int{}}
	for _, s := range scopes {
		for _, p := range c.index.pods(s) {
			if p.Node != nil {
				t.add(p, c.index.numbers[p.Node], 1)
			}
			for _, change := range c.moved[p] {
				t.add(p, change.node, change.by)
			}
		}
		c.interested[s] = append(c.interested[s], t)
	}
	c.tallies[key] = t
	return t
}

// count counts a pod that comes to node (by 1), or leaves it (by -1), in the tallies that there
// are.
func (c *changes) count(p *Pod, node *Node, by int) {
	if len(c.tallies) == 0 {
		return
	}
	for _, s := range scopesOf(p) {
		for _, t := range c.interested[s] {
			t.add(p, c.index.numbers[node], by)
		}
	}
}

// record has the tallies to come count it too.
func (c *changes) record(p *Pod, node *Node, by int) {
	c.moved[p] = append(c.moved[p], change{c.index.numbers[node], by})
}

// move counts pods where places has them instead of on their nodes (by 1), or undoes that (by -1).
func (c *changes) move(places map[*Pod]*Node, by int) {
	for p, to := range places {
		if p.Node != nil {
			c.count(p, p.Node, -by)
		}
		if to != nil {
			c.count(p, to, by)
		}
	}
}

// spreadPods returns the part of a tallyKey for the pods of a topology spread constraint.
func spreadPods(namespace string, selector labels.Selector) string {
	return namespace + "/" + selector.String()
}

// affinityPods returns the part of a tallyKey for the pods that match all the terms.
func affinityPods(terms []fwk.AffinityTerm) (text string) {
	for i := range terms {
		t := &terms[i]
		text += fmt.Sprintf("%q %t %q %t;", slices.Sorted(maps.Keys(t.Namespaces)), t.NamespaceSelector.Empty(), t.Selector.String(), t.Selector.Empty())
	}
	return text
}

// affinityScopes returns the scopes with the pods that match a term.
func (x *index) affinityScopes(term *fwk.AffinityTerm) (scopes []scope) {
	if term.NamespaceSelector.Empty() {
		return []scope{x.scope("", term.Selector)}
	}
	for namespace := range term.Namespaces {
		scopes = append(scopes, x.scope(namespace, term.Selector))
	}
	return scopes
}
