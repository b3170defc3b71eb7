package simulation

import (
	"fmt"
	"maps"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// tally counts the pods that match a term by topology domain, in a simulation.
type tally struct {
	matches  func(*snapshot.Pod) bool
	domains  snapshot.Topology
	eligible *snapshot.Eligibility // nil: pods on all nodes count
	// counts contains only domains with at least one such pod.
	counts map[int32]int
	// minimum is the cached result of fewest if hasMinimum.
	minimum    int
	hasMinimum bool
}

// tallyKey identifies a tally in a Room. Tallies with equal keys count the same pods.
type tallyKey struct {
	pods, topologyKey string
	eligible          *snapshot.Eligibility
}

// add adds by pods like p on the node with the number node.
func (t *tally) add(p *snapshot.Pod, node, by int) {
	domain := t.domains[node]
	if domain == snapshot.NoDomain || t.eligible != nil && !t.eligible.Nodes[node] || !t.matches(p) {
		return
	}
	t.hasMinimum = false
	if t.counts[domain] += by; t.counts[domain] == 0 {
		delete(t.counts, domain)
	}
}

// fewest returns the smallest number of pods in an eligible domain. It is 0 if there are fewer than
// minDomains eligible domains.
func (t *tally) fewest(minDomains int) int {
	if len(t.counts) < t.eligible.Domains || t.eligible.Domains < minDomains || len(t.counts) == 0 {
		return 0
	}
	if !t.hasMinimum {
		t.minimum, t.hasMinimum = slices.Min(slices.Collect(maps.Values(t.counts))), true
	}
	return t.minimum
}

// changes records the moves of pods in a simulation since its Snapshot, and updates the tallies.
type changes struct {
	index   *snapshot.Index
	moved   map[*snapshot.Pod][]change
	tallies map[tallyKey]*tally
	// byScope contains the tallies by the scopes whose pods they may count.
	byScope map[snapshot.Scope][]*tally
}

// change adds a pod to the node with that number (by 1) or removes it (by -1).
type change struct{ node, by int }

func newChanges(x *snapshot.Index) *changes {
	return &changes{index: x, moved: map[*snapshot.Pod][]change{}, tallies: map[tallyKey]*tally{}, byScope: map[snapshot.Scope][]*tally{}}
}

// tally returns the tally of a key with the current counts. Each matching pod must be in exactly
// one of the scopes.
func (c *changes) tally(key tallyKey, scopes []snapshot.Scope, matches func(*snapshot.Pod) bool) *tally {
	if existing := c.tallies[key]; existing != nil {
		return existing
	}
	t := &tally{matches: matches, domains: c.index.Topology(key.topologyKey), eligible: key.eligible, counts: map[int32]int{}}
	for _, s := range scopes {
		for _, p := range c.index.Pods(s) {
			if p.Node != nil {
				t.add(p, c.index.Numbers[p.Node], 1)
			}
			for _, change := range c.moved[p] {
				t.add(p, change.node, change.by)
			}
		}
		c.byScope[s] = append(c.byScope[s], t)
	}
	c.tallies[key] = t
	return t
}

// count updates the existing tallies when a pod is added to the node (by 1) or removed (by -1).
func (c *changes) count(p *snapshot.Pod, node *snapshot.Node, by int) {
	if len(c.tallies) == 0 {
		return
	}
	for _, s := range snapshot.ScopesOf(p) {
		for _, t := range c.byScope[s] {
			t.add(p, c.index.Numbers[node], by)
		}
	}
}

// record stores the same change for tallies that are created later.
func (c *changes) record(p *snapshot.Pod, node *snapshot.Node, by int) {
	c.moved[p] = append(c.moved[p], change{c.index.Numbers[node], by})
}

// move counts pods on their nodes in places instead of their own nodes (by 1), or undoes that (by
// -1).
func (c *changes) move(places map[*snapshot.Pod]*snapshot.Node, by int) {
	for p, to := range places {
		if p.Node != nil {
			c.count(p, p.Node, -by)
		}
		if to != nil {
			c.count(p, to, by)
		}
	}
}

// affinityPods returns the part of a tallyKey for the pods that match all the terms.
func affinityPods(terms []fwk.AffinityTerm) (text string) {
	for i := range terms {
		t := &terms[i]
		text += fmt.Sprintf("%q %t %q %q %t;", slices.Sorted(maps.Keys(t.Namespaces)), t.NamespaceSelector.Empty(),
			t.NamespaceSelector.String(), t.Selector.String(), t.Selector.Empty())
	}
	return text
}

// affinityScopes returns the scopes that contain the pods that match a term.
func affinityScopes(x *snapshot.Index, term *fwk.AffinityTerm) (scopes []snapshot.Scope) {
	if _, selects := term.NamespaceSelector.Requirements(); selects {
		return []snapshot.Scope{x.Scope("", term.Selector)}
	}
	for namespace := range term.Namespaces {
		scopes = append(scopes, x.Scope(namespace, term.Selector))
	}
	return scopes
}
