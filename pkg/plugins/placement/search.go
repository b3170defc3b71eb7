package placement

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// mostNodes is how many nodes a narrow search looks at: as many as the scheduler itself never goes below (minFeasibleNodesToFind in
// pkg/scheduler/schedule_one.go of Kubernetes 1.36).
const mostNodes = 100

// Scope says how many nodes a search looks at: the label search of decision_duration_seconds.
type Scope string

const (
	// FewNodes: some of every pool of one capacity type, chosen from the count.
	FewNodes Scope = "few"
	// AllNodes: as many as the scheduler itself wants, of all there are.
	AllNodes Scope = "all"
	// AllAfterFew: as AllNodes, because none of the few took the pod.
	AllAfterFew Scope = "all-after-few"
)

// search is what became of a cycle's search for a node. A cycle without one looks at all nodes.
type search struct{ scope Scope }

const searchKey fwk.StateKey = "spot-aware-scheduler.io/search"

// Clone returns s itself: it changes between searches only.
func (s *search) Clone() fwk.StateData { return s }

// Narrow lets this cycle's search look at few nodes, which State.Search chooses. Who calls it has to search again when Widen says so.
func Narrow(cycle fwk.CycleState) { cycle.Write(searchKey, &search{}) }

// Widen lets the cycle's next search look at all nodes, and reports whether the last one looked at few only.
func Widen(cycle fwk.CycleState) bool {
	data, err := cycle.Read(searchKey)
	if err != nil {
		return false
	}
	s := data.(*search)
	if s.scope != FewNodes {
		return false
	}
	s.scope = AllAfterFew
	return true
}

// Search returns the nodes that the cycle's search should look at, for PreFilter to return, and their scope; nil for all. They are few
// if Narrow was called and Widen was not since: some nodes of every pool, of the capacity type that the pod should have, or of the other
// one where that has no room; those with the fewest siblings and, as far as can be told cheaply, with room for the pod. So no pool is
// missed because it is rare, and the scores decide among them all. Of more than mostNodes pools with room some are left out.
func (s *State) Search(logger klog.Logger, cycle fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, Scope) {
	data, err := cycle.Read(searchKey)
	if err != nil {
		return nil, AllNodes
	}
	this := data.(*search)
	if this.scope == AllAfterFew {
		return nil, AllAfterFew
	}
	this.scope = AllNodes
	if len(s.Counter.order) <= mostNodes || kube.NamesItsNodes(pod) {
		return nil, AllNodes
	}
	fits := newFit(logger, pod)
	types := []decision.CapacityType{decision.OnDemand, decision.Spot}
	switch {
	case s.Plan.KeptOffOnDemand():
		types = types[1:]
	case !s.Plan.MayTakeSpot():
		types = types[:1]
	case s.Plan.Prefer == decision.Spot:
		slices.Reverse(types)
	}
	s.Counter.turn++
	for _, capacity := range types {
		if names := s.candidates(capacity, fits); len(names) > 0 {
			this.scope = FewNodes
			return &fwk.PreFilterResult{NodeNames: names}, FewNodes
		}
		if fits.extended != nil {
			break // DRA may have on these nodes what they do not list
		}
	}
	return nil, AllNodes
}

// candidates returns at most mostNodes nodes of a capacity type that take the pod as far as the policy and fits can tell: about as many of
// every pool; what one has too few, those after it make up for.
func (s *State) candidates(capacity decision.CapacityType, fits *fit) sets.Set[string] {
	names := make(sets.Set[string], mostNodes)
	pools := s.orderedPools(capacity)
	for i, p := range pools {
		quota := max(1, (mostNodes-len(names))/(len(pools)-i))
		// Where a pool has more nodes than siblings, some have none: these first.
		few := s.inPool[p.index] / len(p.nodes)
		var rest []*node
		visited := 0
		for ; visited < len(p.nodes) && quota > 0; visited++ {
			n := p.nodes[(p.next+visited)%len(p.nodes)]
			switch {
			case s.Plan.Class(n.facts) == decision.LastResort || s.admit(n) != decision.Admitted || !fits.on(n):
			case s.inPool[p.index] > 0 && n.siblings(s.revision) > few:
				rest = append(rest, n)
			default:
				names.Insert(n.name)
				quota--
			}
		}
		if quota > 0 {
			slices.SortStableFunc(rest, func(a, b *node) int { return cmp.Compare(a.siblings(s.revision), b.siblings(s.revision)) })
			for _, n := range rest[:min(quota, len(rest))] {
				names.Insert(n.name)
			}
		}
		// The next search goes on from here, so that all nodes have their turn.
		p.next = (p.next + visited) % len(p.nodes)
		if len(names) == mostNodes {
			break
		}
	}
	return names
}

// orderedPools returns the pools of a capacity type that have nodes: in turn, and where there are so many that some may be left out, those
// with the fewest siblings in their zone and in themselves first.
func (s *State) orderedPools(capacity decision.CapacityType) []*pool {
	c := s.Counter
	pools := make([]*pool, 0, len(c.pools))
	for i := range c.pools {
		if p := c.pools[(i+c.turn)%len(c.pools)]; p.capacity == capacity && len(p.nodes) > 0 {
			pools = append(pools, p)
		}
	}
	if len(pools) > mostNodes {
		slices.SortStableFunc(pools, func(a, b *pool) int {
			return cmp.Or(cmp.Compare(s.inZone[a.zone], s.inZone[b.zone]), cmp.Compare(s.inPool[a.index], s.inPool[b.index]))
		})
	}
	return pools
}

// fit tells cheaply and roughly whether a pod fits on a node. The plugins of Kubernetes have the last word: what it overlooks costs a second
// search, not a wrong place.
type fit struct {
	logger           klog.Logger
	tolerations      []v1.Toleration
	affinity         *nodeaffinity.RequiredNodeAffinity // nil: every node will do
	milliCPU, memory int64
	extended         map[v1.ResourceName]int64
}

func newFit(logger klog.Logger, pod *v1.Pod) *fit {
	f := &fit{logger: logger, tolerations: pod.Spec.Tolerations}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		switch name {
		case v1.ResourceCPU:
			f.milliCPU = quantity.MilliValue()
		case v1.ResourceMemory:
			f.memory = quantity.Value()
		case v1.ResourceEphemeralStorage:
			// Seldom what a node is short of.
		default:
			if f.extended == nil {
				f.extended = map[v1.ResourceName]int64{}
			}
			f.extended[name] = quantity.Value()
		}
	}
	if wanted := pod.Spec.Affinity; len(pod.Spec.NodeSelector) > 0 || wanted != nil && wanted.NodeAffinity != nil {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		f.affinity = &affinity
	}
	return f
}

func (f *fit) on(n *node) bool {
	if n.free.pods < 1 || f.milliCPU > n.free.milliCPU || f.memory > n.free.memory || n.free.guarded && !f.passes(n.info.Node()) {
		return false
	}
	for name, want := range f.extended {
		if want > n.info.GetAllocatable().GetScalarResources()[name]-n.info.GetRequested().GetScalarResources()[name] {
			return false
		}
	}
	if f.affinity == nil {
		return true
	}
	match, err := f.affinity.Match(n.info.Node())
	return match && err == nil
}

// cordon is the taint that stands for a cordon, whether or not the node has it yet.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// passes reports whether the pod may pass a node's taints and cordon.
func (f *fit) passes(node *v1.Node) bool {
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(f.logger, f.tolerations, &cordon, true) {
		return false
	}
	_, untolerated := corev1.FindMatchingUntoleratedTaint(f.logger, node.Spec.Taints, f.tolerations, keepsOff, true)
	return !untolerated
}

// keepsOff reports whether a taint keeps pods off that do not tolerate it.
func keepsOff(taint *v1.Taint) bool { return taint.Effect != v1.TaintEffectPreferNoSchedule }
