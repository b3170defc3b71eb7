package cluster

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Room simulates where the scheduler would still find room. It knows the capacity of nodes, their taints, cordons, readiness and signals,
// and of a pod its requests, ports, node selector and affinity, where its bound volumes can be reached, its own required pod affinity and
// anti-affinity and its hard topology spread; and for pods of the profile the policy, as if none had waited. What it does not know of lets
// a pod in: limits on attached volumes, resource claims, gangs, the anti-affinity of others. There a move may end in a pod that waits.
//
// It only ever fills: what a pod leaves behind keeps its room until the pod is gone. It is not for concurrent use, and valid as long as its
// Snapshot is not changed.
type Room struct {
	snapshot *Snapshot
	index    *index
	sites    []site   // by the number of the node
	groups   []*group // of open nodes, by the name of their first

	standings map[*Revision]*standing
	classes   map[any][]*class // of equal pods, by their revision, else by the pod
	changes   *changes
	answers   map[question]answer
	over      func() bool
	ranked    []ranked // scratch
}

// question is what Replace is asked.
type question struct {
	pod      *Pod
	requires decision.Assignment
}

type answer struct {
	to  *Node
	why string
}

// site is a node in the simulation.
type site struct {
	*Node
	index int // in Snapshot.Nodes
	free  free
	group *group // nil: closed
}

// group is all open nodes that are the same to the policy.
type group struct {
	groupKey
	index int // in Room.groups
	sites []*site
}

type groupKey struct {
	facts decision.Node
	zone  string
}

// pool is what siblings in a pool are counted by.
func (k groupKey) pool() decision.SpreadPool { return k.facts.SpreadPool(k.zone) }

// standing is where the pods of one revision stand in the simulation.
type standing struct {
	placed decision.Placed
	onNode map[*site]int
	inZone map[string]int
	inPool map[decision.SpreadPool]int
}

func (s *standing) add(at *site, n int) {
	key := keyOf(at.Node)
	if key.facts.Capacity.Type == decision.Spot {
		s.placed.Spot += n
		s.inPool[key.pool()] += n
	} else {
		s.placed.OnDemand += n
	}
	s.onNode[at] += n
	s.inZone[key.zone] += n
}

func keyOf(node *Node) groupKey { return groupKey{node.Facts, node.Labels[v1.LabelTopologyZone]} }

// NewRoom returns the room there is in s once the pods that wait have taken theirs: those nominated to a node, then the others by priority,
// age, namespace and name. A pod that has scheduling gates does not wait for room yet.
func NewRoom(s *Snapshot) *Room { return NewRoomUntil(s, func() bool { return false }) }

// NotExamined is the answer of a Room whose time is over.
const NotExamined = "not examined in this round"

// NewRoomUntil returns what NewRoom does, but searches no more once over reports true, which then it
// must do ever after: every pod that was not asked for before is NotExamined.
func NewRoomUntil(s *Snapshot, over func() bool) *Room {
	r := &Room{
		over:     over,
		snapshot: s, index: indexOf(s), sites: make([]site, len(s.Nodes)), standings: map[*Revision]*standing{},
		classes: map[any][]*class{}, changes: newChanges(indexOf(s)), answers: map[question]answer{},
	}
	groups := map[groupKey]*group{}
	for i, node := range s.Nodes {
		at := &r.sites[i]
		*at = site{Node: node, index: i}
		if !open(node) {
			continue
		}
		key := keyOf(node)
		g := groups[key]
		if g == nil {
			g = &group{groupKey: key, index: len(r.groups)}
			groups[key], r.groups = g, append(r.groups, g)
		}
		at.group, g.sites = g, append(g.sites, at)
	}
	r.seat(s)
	return r
}

// Over reports whether the time of the Room is over: see NewRoomUntil.
func (r *Room) Over() bool { return r.over() }

// siteOf returns the site of a node; nil for nil.
func (r *Room) siteOf(node *Node) *site {
	if i, ok := r.index.numbers[node]; ok {
		return &r.sites[i]
	}
	return nil
}

// open reports whether a node takes new pods. One whose capacity label may still arrive does not: it may be what a floor waits for, and is
// no place to move a pod to before its capacity type is known.
func open(node *Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
	ours := func(t v1.Taint) bool { return t.Key == kube.InterruptionTaint }
	settled := node.Facts.Capacity.Source != decision.Settling
	return ready && settled && !node.Spec.Unschedulable && node.Facts.Signal < decision.Drain && !slices.ContainsFunc(node.Spec.Taints, ours)
}

// seat gives the pods that wait the room that they will take.
func (r *Room) seat(s *Snapshot) {
	var waiting []*Pod
	nominated := map[*Pod]*site{}
	nodes := map[string]*Node{}
	for _, p := range s.Pods {
		if p.Spec.NodeName != "" || !kube.Live(p.Pod) || len(p.Spec.SchedulingGates) > 0 {
			continue
		}
		waiting = append(waiting, p)
		if name := p.Status.NominatedNodeName; name != "" && !p.Excessive() {
			if len(nodes) == 0 {
				for _, node := range s.Nodes {
					nodes[node.Name] = node
				}
			}
			if node := nodes[name]; node != nil {
				nominated[p] = r.siteOf(node)
			}
		}
	}
	slices.SortStableFunc(waiting, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for _, p := range waiting {
		// Pods that preemption has put to death still hold what it is to have: then nothing is left for anybody else.
		if at := nominated[p]; at != nil {
			r.take(p, at, r.classOf(p))
			r.answers[question{pod: p}] = answer{to: at.Node}
		}
	}
	for _, p := range waiting {
		if nominated[p] == nil {
			r.Replace(p, decision.Unassigned)
		}
	}
}

// Replace finds where a replacement of p would be placed once p no longer counts, takes that room and counts the replacement; p itself
// keeps its room. If the scheduler would find none, nothing changes: it returns nil, and why says what is in the way. Asked again for p it
// returns the same. For a pod that waits it is where that would be placed itself.
//
// If requires is decision.AssignedOnDemand or decision.AssignedSpot, the replacement requires that capacity type. Once room was found for p,
// Replace must not be asked for p with another requires.
func (r *Room) Replace(p *Pod, requires decision.Assignment) (to *Node, why string) {
	asks := question{p, requires}
	known, asked := r.answers[asks]
	if !asked {
		if r.over() {
			return nil, NotExamined
		}
		if known = (answer{why: "it has too many terms (affinity, constraints, tolerations) to be examined"}); !p.Excessive() {
			known = r.replace(asks)
		}
		r.answers[asks] = known
	}
	return known.to, known.why
}

func (r *Room) replace(asks question) answer {
	p := asks.pod
	revision := cmp.Or(p.Revision, p.ReleasedFrom)
	stands := r.standingOf(revision)
	from := r.siteOf(p.Node)
	// A released pod stays until its replacement is ready; every other one is gone before that is placed.
	leaves := from != nil && p.Release == nil
	c := r.classOf(p)
	found := false
	if leaves {
		r.count(p, from, stands, -1)
		defer func() { // also after a panic
			if !found {
				r.count(p, from, stands, 1)
			}
		}()
	}
	plan := planOf(p, revision, stands.placed, asks.requires)
	at, refused, examined := r.find(c, plan, stands, asks.requires)
	if found = at != nil; !found {
		if !examined {
			return answer{why: NotExamined}
		}
		return answer{why: nowhere(plan, refused)}
	}
	if leaves {
		r.changes.record(p, from.Node, -1)
	}
	r.take(p, at, c)
	return answer{to: at.Node}
}

// count counts p on its node once more (by 1), or no longer (by -1).
func (r *Room) count(p *Pod, on *site, stands *standing, by int) {
	if p.Live() {
		stands.add(on, by)
	}
	r.changes.count(p, on.Node, by)
}

// nowhere says why nothing was found. refused is why the policy keeps the pod off some open nodes, Admitted if it does not.
func nowhere(plan *decision.Plan, refused decision.Verdict) string {
	if refused == decision.Admitted {
		return "no node has room for it"
	}
	return fmt.Sprintf("no node that it may go to has room for it: %s", plan.Reason(refused))
}

// planOf returns the decision for a replacement of p, of a revision that stands as placed says; nil if the policy has no say in it. A
// replacement that requires on-demand is not kept off it by overflow Never.
func planOf(p *Pod, revision *Revision, placed decision.Placed, requires decision.Assignment) *decision.Plan {
	pod := p.replacement
	if pod == nil && p.Subject != nil {
		pod = &p.Subject.Pod
	}
	if pod == nil || revision == nil || !revision.Workload.Ours {
		return nil
	}
	settings := &revision.Workload.Settings
	if revision.settings != nil {
		settings = revision.settings
	}
	replacement := *pod.Replacement()
	replacement.OnlyOnDemand = replacement.OnlyOnDemand || requires == decision.AssignedOnDemand
	plan := decision.NewPlan(&replacement, *settings, placed, decision.Waiting{})
	return &plan
}

// take gives p's replacement, which is of class c, its room on a node.
func (r *Room) take(p *Pod, at *site, c *class) {
	at.take(c)
	if revision := cmp.Or(p.Revision, p.ReleasedFrom); revision != nil {
		r.standingOf(revision).add(at, 1)
	}
	r.changes.count(p, at.Node, 1)
	r.changes.record(p, at.Node, 1)
}

// standingOf returns where the pods of a revision stand; an empty standing for nil.
func (r *Room) standingOf(revision *Revision) *standing {
	if s := r.standings[revision]; s != nil && revision != nil {
		return s
	}
	s := &standing{onNode: map[*site]int{}, inZone: map[string]int{}, inPool: map[decision.SpreadPool]int{}}
	if revision != nil {
		r.standings[revision] = s
		for _, p := range revision.Pods {
			if at := r.siteOf(p.Node); at != nil {
				s.add(at, 1)
			}
		}
	}
	return s
}

// ranked is a group with the rank of those of its nodes that have no sibling.
type ranked struct {
	*group
	rank decision.Rank
}

// find returns the best node of the required capacity type that takes a pod of class c: by Plan.Rank, then by name. Without a
// plan it is the first by name, one with an advisory signal last. nil: none; then refused is why the
// policy keeps the pod off open nodes, the first such Verdict of all. examined is false, and best
// nil, if the time of the Room was over before the end.
func (r *Room) find(
	c *class, plan *decision.Plan, stands *standing, requires decision.Assignment,
) (best *site, refused decision.Verdict, examined bool) {
	rank := func(g *group, onNode int) decision.Rank {
		switch {
		case plan != nil:
			around := decision.Siblings{OnNode: onNode, InZone: stands.inZone[g.zone], InPool: stands.inPool[g.pool()]}
			return plan.Rank(g.facts, around, 0)
		case g.facts.Signal == decision.NoSignal:
			return 1
		}
		return 0
	}
	r.ranked = r.ranked[:0]
	for _, g := range r.groups {
		if !requires.Admits(g.facts.Capacity.Type) {
			continue
		}
		if plan != nil {
			if verdict := plan.Admit(g.facts, 0, stands.inPool[g.pool()]); verdict != decision.Admitted {
				if refused == decision.Admitted || verdict < refused {
					refused = verdict
				}
				continue
			}
		}
		r.ranked = append(r.ranked, ranked{g, rank(g, 0)})
	}
	slices.SortStableFunc(r.ranked, func(a, b ranked) int { return cmp.Compare(b.rank, a.rank) })
	var bestRank decision.Rank
	for _, g := range r.ranked {
		if best != nil && bestRank > g.rank {
			break
		}
		if r.over() {
			return nil, refused, false
		}
		prefix := true
		for i := c.from[g.index]; i < len(g.sites); i++ {
			at := g.sites[i]
			here := g.rank
			if plan != nil && len(stands.onNode) > 0 {
				if n := stands.onNode[at]; n > 0 {
					here = rank(g.group, n)
				}
			}
			if best != nil && (here < bestRank || here == bestRank && at.index > best.index) {
				if bestRank == g.rank && at.index > best.index {
					break // those that follow are no better, and have later names
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
				c.from[g.index] = i + 1
			}
		}
	}
	if best != nil {
		refused = decision.Admitted
	}
	return best, refused, true
}
