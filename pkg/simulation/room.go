// Package simulation finds out where the scheduler would place pods, without scheduling them: the
// room for replacements (Room), the nodes that a pending pod could use (Demand, Feasibility), and
// why a pod cannot run on a node (Demand.Obstacles).
package simulation

import (
	"cmp"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Room simulates on which nodes the scheduler would still find room. For nodes it considers
// capacity, taints, cordons, readiness and signals. For pods it considers what their successors
// request, after LimitRanges (see snapshot.Pod.Successor), host ports, priority and preemption,
// node selector and affinity, the reach and the other users of bound volumes, limits on attached
// volumes, required pod affinity, required anti-affinity in both directions, and hard topology
// spread. For pods of the profile it also considers the policy, as if no pod had waited. Room
// ignores resource claims, gangs, and the filters of other schedulers. A move that depends on them
// may result in a pending replacement.
//
// A moved pod occupies its room until the pod is gone. Only a preempted pod frees its room, and
// only if no node has room without preemption. Room is not safe for concurrent use. It is valid as
// long as its Snapshot does not change.
type Room struct {
	sites  []site   // by node number
	groups []*group // of open nodes, by the name of their first node

	distributions map[*snapshot.Revision]*distribution
	classes       map[any][]*class // of equal pods, by revision, or by pod without a revision
	changes       *changes
	results       map[query]result
	expired       func() bool
	ranked        []*group // set by find: the admitted groups by rank
	pendingPlaced bool     // whether placePending was called

	// The fields below are used for preemption. charged is how many pods that a PodDisruptionBudget
	// selects were preempted. byLowest is the result of byLowestPriority; nil: not computed yet.
	snapshot *snapshot.Snapshot
	charged  map[*policyv1.PodDisruptionBudget]int32
	byLowest []*site
}

type query struct {
	pod      *snapshot.Pod
	requires decision.AssignedCapacity
}

type result struct {
	to  *snapshot.Node
	why string
}

type site struct {
	*snapshot.Node
	index int                 // in Snapshot.Nodes
	free  *workload.Resources // set by unused
	ports fwk.HostPortInfo    // set by usedPorts
	group *group              // nil: not open
	// lowest is set by Room.byLowestPriority, and the cache without, for one priority, by
	// Room.enough.
	lowest     int32
	without    *workload.Resources
	withoutFor int32
}

// group is a set of open nodes that are equal to the policy.
type group struct {
	facts decision.Node
	index int // in Room.groups
	sites []*site

	// admitted and rank, that of nodes without a sibling, are set by Room.rankGroups.
	admitted bool
	rank     decision.Rank
}

type distribution struct {
	decision.Distribution
	onNode map[*site]int
}

func (d *distribution) add(at *site, n int) {
	d.Add(at.Facts, n)
	d.onNode[at] += n
}

// NewRoom returns the room in s after the pending pods were placed: first pods that are nominated
// to a node, then by priority, age, namespace and name. Pods with scheduling gates are not placed.
func NewRoom(s *snapshot.Snapshot) *Room { return NewRoomUntil(s, func() bool { return false }) }

// NotExamined is the reason that a Room returns after its time has ended.
const NotExamined = "not examined in this round"

// NewRoomUntil is like NewRoom, but stops searching when expired returns true. Once true, expired
// must remain true. Pods without an earlier result are then NotExamined.
func NewRoomUntil(s *snapshot.Snapshot, expired func() bool) *Room {
	r := &Room{
		expired: expired, sites: make([]site, len(s.Nodes)), distributions: map[*snapshot.Revision]*distribution{},
		classes: map[any][]*class{}, changes: newChanges(s.Index()), results: map[query]result{},
		snapshot: s, charged: map[*policyv1.PodDisruptionBudget]int32{},
	}
	groups := map[decision.Node]*group{}
	for i, node := range s.Nodes {
		at := &r.sites[i]
		*at = site{Node: node, index: i}
		if !open(node) {
			continue
		}
		g := groups[node.Facts]
		if g == nil {
			g = &group{facts: node.Facts, index: len(r.groups)}
			groups[node.Facts], r.groups = g, append(r.groups, g)
		}
		at.group, g.sites = g, append(g.sites, at)
	}
	return r
}

// Expired reports whether the time of the Room has ended; see NewRoomUntil.
func (r *Room) Expired() bool { return r.expired() }

// siteOf returns the site of a node, or nil for nil.
func (r *Room) siteOf(node *snapshot.Node) *site {
	if i, ok := r.changes.index.Numbers[node]; ok {
		return &r.sites[i]
	}
	return nil
}

// siteNamed returns the site of the node with that name; nil if there is none.
func (r *Room) siteNamed(name string) *site {
	byName := func(at site, name string) int { return strings.Compare(at.Name, name) }
	if i, found := slices.BinarySearchFunc(r.sites, name, byName); found {
		return &r.sites[i]
	}
	return nil
}

// open reports whether a node accepts new pods. A node whose capacity label may still arrive does
// not: a floor may be waiting for it, and the controller moves no pod to a node of unknown capacity
// type.
func open(n *snapshot.Node) bool {
	return node.Ready(n.Node) && n.Facts.Capacity.Source != decision.Settling && n.Remains()
}

// Replace finds the node on which the scheduler would place a replacement of p after p no longer
// counts. It reserves room there and counts the replacement; p itself occupies its room as before.
// If the scheduler would preempt pods there, why is AfterPlaceholders or AfterPreemption; their
// room is the replacement's. If no node has room, Replace changes nothing and returns nil and the
// reason. A replacement whose template names a node runs only there. Repeated calls for p return
// the same result. For a pending pod, the result is the node of the pod itself.
//
// If requires is decision.AssignedOnDemand or decision.AssignedSpot, the replacement requires that
// capacity type. After a call for p has found room, no call for p may have another requires.
func (r *Room) Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (to *snapshot.Node, why string) {
	if !r.pendingPlaced {
		r.pendingPlaced = true
		r.placePending()
	}
	q := query{p, requires}
	found, cached := r.results[q]
	if !cached {
		switch {
		case r.expired():
			return nil, NotExamined
		case Excessive(p):
			found.why = "it has too many terms (affinity, constraints, tolerations) to be examined"
		default:
			found = r.replace(q)
		}
		r.results[q] = found
	}
	return found.to, found.why
}

func (r *Room) replace(q query) result {
	p := q.pod
	dist := r.distributionOf(p.OwnRevision())
	from := r.siteOf(p.Node)
	// A released pod remains until its replacement is ready. Any other pod is gone before its
	// replacement is placed. A preempted pod is gone already.
	vacates := from != nil && p.Release == nil && len(r.changes.moved[p]) == 0
	c := r.classOf(p, q.requires)
	found := false
	if vacates {
		r.count(p, from, dist, -1)
		defer func() { // also after a panic
			if !found {
				r.count(p, from, dist, 1)
			}
		}()
	}
	at, why := r.search(q, c, dist, from)
	if found = at != nil; !found {
		return result{why: why}
	}
	if vacates {
		r.changes.record(p, from.Node, -1)
		from.without = nil // p is no longer preemptible
	}
	r.place(p, at, c)
	return result{at.Node, why}
}

// search returns the node for a replacement of class c, which must leave the node from. If there is
// none, it returns the reason. It evicts the pods that the replacement preempts.
func (r *Room) search(q query, c *class, dist *distribution, from *site) (at *site, why string) {
	p := q.pod
	if refused := p.SuccessorRefused(); refused != "" {
		return nil, refused
	}
	if name := p.SuccessorNode(); name != "" {
		if at = r.siteNamed(name); at != nil && at != from && at.group != nil && q.requires.Admits(at.Facts.Capacity.Type) {
			if fits, _ := c.fits(at); fits {
				return at, ""
			}
		}
		return nil, "its template names node " + name
	}
	plan := planOf(p, p.OwnRevision(), dist.Placed, q.requires)
	at, refused, examined := r.find(c, plan, dist, q.requires)
	if at != nil {
		return at, ""
	}
	if examined {
		at, why, examined = r.preempt(p, c, plan)
	}
	switch {
	case at != nil:
		return at, why
	case !examined:
		return nil, NotExamined
	case refused == decision.Admitted: // the policy rejects no open node
		return nil, "no node has room for it"
	}
	return nil, "no node that the policy permits has room for it: " + plan.Reason(refused)
}

// count adds p on its node (by 1) or removes it (by -1).
func (r *Room) count(p *snapshot.Pod, on *site, dist *distribution, by int) {
	if p.Live() {
		dist.add(on, by)
	}
	r.changes.count(p, on.Node, by)
}

// planOf returns the decision for a replacement of p, a replica of a revision with the pods in
// placed. It returns nil if the policy does not apply. overflow Never does not reject a replacement
// that requires on-demand.
func planOf(p *snapshot.Pod, revision *snapshot.Revision, placed decision.PlacedPods, requires decision.AssignedCapacity) *decision.Plan {
	if p.Replacement == nil || revision == nil || !revision.Workload.InScope {
		return nil
	}
	settings := cmp.Or(revision.Settings, &revision.Workload.Settings)
	replacement := *p.Replacement.Replacement()
	replacement.OnlyOnDemand = replacement.OnlyOnDemand || requires == decision.AssignedOnDemand
	plan := decision.NewPlan(&replacement, *settings, placed, decision.WaitTime{})
	return &plan
}

// place reserves room on the node for p's replacement, which is of class c.
func (r *Room) place(p *snapshot.Pod, at *site, c *class) {
	at.reserve(c)
	if revision := p.OwnRevision(); revision != nil {
		r.distributionOf(revision).add(at, 1)
	}
	r.changes.count(p, at.Node, 1)
	r.changes.record(p, at.Node, 1)
}

// distributionOf returns the distribution of the pods of a revision. It is empty for nil.
func (r *Room) distributionOf(revision *snapshot.Revision) *distribution {
	if s := r.distributions[revision]; s != nil && revision != nil {
		return s
	}
	s := &distribution{onNode: map[*site]int{}}
	if revision != nil {
		r.distributions[revision] = s
		for _, p := range revision.Pods {
			if at := r.siteOf(p.Node); at != nil {
				s.add(at, 1)
			}
		}
	}
	return s
}

// find returns the best node of the required capacity type with room for a pod of class c: by
// Plan.Rank, then by name. Without a plan it returns the first node by name, but nodes with an
// advisory signal last. If there is none, best is nil, and refused is the smallest Verdict by which
// the policy rejects open nodes. If the time of the Room ended during the search, best is nil and
// examined is false.
func (r *Room) find(
	c *class, plan *decision.Plan, dist *distribution, requires decision.AssignedCapacity,
) (best *site, refused decision.Verdict, examined bool) {
	refused = r.rankGroups(plan, dist, requires)
	var bestRank decision.Rank
	for _, g := range r.ranked {
		if best != nil && bestRank > g.rank {
			break
		}
		if r.expired() {
			return nil, refused, false
		}
		prefix := true
		for i := c.next[g.index]; i < len(g.sites); i++ {
			at := g.sites[i]
			here := g.rank
			if plan != nil && len(dist.onNode) > 0 {
				if n := dist.onNode[at]; n > 0 {
					here = rankOf(g, plan, dist, n)
				}
			}
			if best != nil && (here < bestRank || here == bestRank && at.index > best.index) {
				if bestRank == g.rank && at.index > best.index {
					break // the nodes after it have no higher rank and later names
				}
				prefix = false
				continue
			}
			fits, ever := c.fits(at)
			if fits {
				best, bestRank, prefix = at, here, false
				continue
			}
			if prefix = prefix && !ever; prefix {
				c.next[g.index] = i + 1
			}
		}
	}
	if best != nil {
		refused = decision.Admitted
	}
	return best, refused, true
}

// rankGroups sets r.ranked to the groups that the policy admits, the best first. It returns the
// lowest verdict of the refused groups; Admitted if the policy refuses none.
func (r *Room) rankGroups(plan *decision.Plan, dist *distribution, requires decision.AssignedCapacity) (refused decision.Verdict) {
	r.ranked = r.ranked[:0]
	for _, g := range r.groups {
		if g.admitted = false; !requires.Admits(g.facts.Capacity.Type) {
			continue
		}
		if plan != nil {
			if verdict := plan.Admit(g.facts, 0, dist.InPool(g.facts)); verdict != decision.Admitted {
				if refused == decision.Admitted || verdict < refused {
					refused = verdict
				}
				continue
			}
		}
		g.admitted, g.rank = true, rankOf(g, plan, dist, 0)
		r.ranked = append(r.ranked, g)
	}
	slices.SortStableFunc(r.ranked, func(a, b *group) int { return cmp.Compare(b.rank, a.rank) })
	return refused
}

// rankOf returns the rank of a node of the group with so many pods of the workload. Without a plan,
// nodes without a signal come first.
func rankOf(g *group, plan *decision.Plan, dist *distribution, onNode int) decision.Rank {
	switch {
	case plan != nil:
		return plan.Rank(g.facts, dist.Around(g.facts, onNode), 0)
	case g.facts.Signal == decision.NoSignal:
		return 1
	}
	return 0
}
