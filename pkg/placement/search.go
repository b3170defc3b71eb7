package placement

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// A narrow search has narrowNodes nodes: nodes of a pool with equally many siblings rank alike. It
// has up to maxNarrowNodes if there are more pools, or if other plugins may rank nodes of a pool.
// That is the scheduler's own minimum (minFeasibleNodesToFind in Kubernetes 1.36).
const (
	narrowNodes    = 16
	maxNarrowNodes = 100
)

// Scope is the extent of a search: the label search of decision_duration_seconds.
type Scope string

const (
	// FewNodes means some nodes of every pool of one capacity type, chosen by the Counter.
	FewNodes Scope = "few"
	// AllNodes means that the scheduler searches all nodes until it has found as many as it needs.
	AllNodes Scope = "all"
	// AllAfterFew is like AllNodes, because the pod fit on none of the few nodes.
	AllAfterFew Scope = "all-after-few"
)

// search records the scope of a cycle's search. A cycle without one searches all nodes.
type search struct{ scope Scope }

const searchKey fwk.StateKey = "spot-aware-scheduler.io/search"

// Clone returns s itself, because s changes between searches only.
func (s *search) Clone() fwk.StateData { return s }

// Narrow allows this cycle to search few nodes, which State.Search chooses. The caller must search
// again if Widen returns true.
func Narrow(cycle fwk.CycleState) { cycle.Write(searchKey, &search{}) }

// Widen makes the cycle's next search cover all nodes. It reports whether the last search covered
// few nodes only.
func Widen(cycle fwk.CycleState) bool {
	data, _ := cycle.Read(searchKey)
	s, _ := data.(*search)
	if s == nil || s.scope != FewNodes {
		return false
	}
	s.scope = AllAfterFew
	return true
}

// Search returns the nodes that the cycle should search and their scope, as the result of
// PreFilter. The result is nil for all nodes.
//
// The search is narrow if Narrow was called and Widen was not called since. It then includes nodes
// of every pool of the preferred capacity type, or of the other type if that has no room: nodes on
// which the pod roughly fits, with the fewest siblings first. So a rare pool is never missed. If
// more than maxNarrowNodes pools have room, some pools are omitted.
func (s *State) Search(cycle fwk.CycleState) (*fwk.PreFilterResult, Scope) {
	data, err := cycle.Read(searchKey)
	if err != nil {
		return nil, AllNodes
	}
	this := data.(*search)
	if this.scope == AllAfterFew {
		return nil, AllAfterFew
	}
	this.scope = AllNodes
	if len(s.Counter.order) <= maxNarrowNodes || workload.SelectsNodesByName(s.Pod) {
		return nil, AllNodes
	}
	requirements := workload.NewRequirements(s.Pod, nil, workload.RequestsOf(s.Pod))
	fits := func(n *nodeState) bool { return n.fits(requirements) }
	s.Counter.rotation++
	for _, capacity := range s.capacityTypes() {
		if names := s.candidates(s.orderedPools(capacity), s.nodesToSearch(), fits); len(names) > 0 {
			this.scope = FewNodes
			return &fwk.PreFilterResult{NodeNames: names}, FewNodes
		}
		if len(requirements.Needs.Others) > 0 {
			break // DRA drivers may provide resources that the nodes do not list
		}
	}
	return nil, AllNodes
}

// Select returns the indices of the best of the named nodes, in order. Like a narrow search it
// selects some nodes of every pool of one capacity type. If the pools are capped, it selects nodes
// of one spot pool only. It returns nil if the policy admits none of the nodes, or admits them only
// as a last resort.
func (s *State) Select(names []string) (selected []int) {
	s.Counter.rotation++
	number := s.Counter.rotation
	for i, name := range names {
		if n := s.Counter.nodes[name]; n != nil {
			n.selection, n.candidate = number, i
		}
	}
	accepts := func(n *nodeState) bool { return n.selection == number }
	for _, capacity := range s.capacityTypes() {
		few := s.candidates(s.orderedPools(capacity), maxNarrowNodes, accepts)
		if len(few) > 0 && capacity == decision.Spot && s.Plan.PoolCap > 0 && s.Plan.Grant == decision.NotGranted {
			best := slices.MaxFunc(sets.List(few), func(a, b string) int { return cmp.Compare(s.Rank(a), s.Rank(b)) })
			few = s.candidates([]*pool{s.Counter.nodes[best].pool}, maxNarrowNodes, accepts)
		}
		for name := range few {
			selected = append(selected, s.Counter.nodes[name].candidate)
		}
		if len(selected) > 0 {
			break
		}
	}
	slices.Sort(selected)
	return selected
}

// capacityTypes returns the capacity types that the plan admits, the preferred one first.
func (s *State) capacityTypes() []decision.CapacityType {
	switch {
	case s.Plan.ExcludedFromOnDemand():
		return []decision.CapacityType{decision.Spot}
	case !s.Plan.AdmitsSpot():
		return []decision.CapacityType{decision.OnDemand}
	case s.Plan.Prefer == decision.Spot:
		return []decision.CapacityType{decision.Spot, decision.OnDemand}
	}
	return []decision.CapacityType{decision.OnDemand, decision.Spot}
}

// nodesToSearch returns the number of nodes in a narrow search. It is larger for a pod with
// preferences, or with requirements that fits does not check. All nodes of the search have one
// capacity type, so a preference for a whole type, such as the controller's, does not count.
func (s *State) nodesToSearch() int {
	spec, claims := &s.Pod.Spec, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }
	a := ptr.Deref(spec.Affinity, v1.Affinity{})
	nodes := ptr.Deref(a.NodeAffinity, v1.NodeAffinity{}).PreferredDuringSchedulingIgnoredDuringExecution
	if a.PodAffinity != nil || a.PodAntiAffinity != nil || len(spec.TopologySpreadConstraints)+len(spec.ResourceClaims) > 0 ||
		slices.ContainsFunc(nodes, s.ranksNodes) || slices.ContainsFunc(spec.Volumes, claims) {
		return maxNarrowNodes
	}
	return narrowNodes
}

// ranksNodes reports whether a preference may rank nodes of one capacity type: it has an expression
// that is not about capacity types, or that names some values of a type and not all.
func (s *State) ranksNodes(term v1.PreferredSchedulingTerm) bool {
	selector := &term.Preference
	return len(selector.MatchFields) > 0 || slices.ContainsFunc(selector.MatchExpressions, func(e v1.NodeSelectorRequirement) bool {
		known, partly := false, false
		for _, capacity := range []decision.CapacityType{decision.Spot, decision.OnDemand} {
			values, byPresence := s.Counter.reader.Policy.ValuesOf(e.Key, capacity)
			named := sets.New(e.Values...).Intersection(sets.New(values...)).Len()
			known, partly = known || byPresence || len(values) > 0, partly || named > 0 && named < len(values)
		}
		return !known || partly
	})
}

// candidates returns nodes of pools that the policy admits and accepts reports: total, or one of
// each of the first maxNarrowNodes pools if there are more pools. Each pool contributes about the
// same number of nodes. Later pools fill the share that a pool cannot use.
func (s *State) candidates(pools []*pool, total int, accepts func(*nodeState) bool) sets.Set[string] {
	names := make(sets.Set[string], total)
	for i, p := range pools {
		quota := max(1, (total-len(names))/(len(pools)-i))
		// If a pool has more nodes than siblings, some nodes have none. Prefer these, and nodes
		// without taints PreferNoSchedule.
		few := s.inPool[p.index] / len(p.nodes)
		var rest []*nodeState
		visited := 0
		for ; visited < len(p.nodes) && quota > 0; visited++ {
			n := p.nodes[(p.next+visited)%len(p.nodes)]
			switch {
			case s.Plan.RankClass(n.facts) == decision.LastResort || s.admit(n) != decision.Admitted || !accepts(n):
			case n.avoided, s.inPool[p.index] > 0 && n.siblings(s.revision) > few:
				rest = append(rest, n)
			default:
				names.Insert(n.name)
				quota--
			}
		}
		slices.SortStableFunc(rest, func(a, b *nodeState) int { return cmp.Compare(a.siblings(s.revision), b.siblings(s.revision)) })
		for _, n := range rest[:min(quota, len(rest))] {
			names.Insert(n.name)
		}
		// The next search continues here, so each node is eventually searched.
		p.next = (p.next + visited) % len(p.nodes)
		if len(names) == maxNarrowNodes {
			break
		}
	}
	return names
}

// orderedPools returns the pools of a capacity type that have nodes, rotated by Counter.rotation.
// If there are more than maxNarrowNodes pools, so that candidates may omit some, the pools with the
// fewest siblings in their zone, then in themselves, are first.
func (s *State) orderedPools(capacity decision.CapacityType) []*pool {
	c := s.Counter
	pools := make([]*pool, 0, len(c.pools))
	for i := range c.pools {
		if p := c.pools[(i+c.rotation)%len(c.pools)]; p.key.Capacity == capacity && len(p.nodes) > 0 {
			pools = append(pools, p)
		}
	}
	if len(pools) > maxNarrowNodes {
		slices.SortStableFunc(pools, func(a, b *pool) int {
			return cmp.Or(cmp.Compare(s.inZone[a.zone], s.inZone[b.zone]), cmp.Compare(s.inPool[a.index], s.inPool[b.index]))
		})
	}
	return pools
}

// fits reports whether a pod with these requirements roughly fits on the node, which is a cheap
// test. The plugins of Kubernetes decide in the end: an error costs a second search but never
// causes a wrong placement.
func (n *nodeState) fits(pod *workload.Requirements) bool {
	return n.free.Covers(&pod.Needs) &&
		!(n.restricted && pod.UntoleratedTaint(n.info.Node(), workload.ExcludesPods) != "") && pod.Matches(n.info.Node())
}
