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
)

// minCandidates is how many nodes a narrow search looks at, at least: as many as the scheduler itself never goes below
// (minFeasibleNodesToFind in pkg/scheduler/schedule_one.go of Kubernetes 1.36). docs/design/throughput.md has what more would cost.
const minCandidates = 100

// Scope says how many nodes a search looks at: the label of the searches metric.
type Scope string

const (
	// FewNodes: some of every pool of one capacity type, chosen from the count.
	FewNodes Scope = "few"
	// AllNodes: as many as the scheduler itself wants, of all there are.
	AllNodes Scope = "all"
	// AllAfterFew: as AllNodes, because none of the few took the pod.
	AllAfterFew Scope = "all-after-few"
)

// search is what a cycle's search for a node is told, and what became of it.
type search struct {
	percentage int32
	scope      Scope
}

const searchKey fwk.StateKey = "spot-aware-scheduler.io/search"

// Clone returns s itself: it changes between searches only.
func (s *search) Clone() fwk.StateData { return s }

// Narrow lets this cycle's search look at few nodes, which NewSearch chooses. percentage is the configured percentageOfNodesToScore; 0 if
// none is. Who calls it has to search again when Widen says so.
func Narrow(cycle fwk.CycleState, percentage int32) {
	cycle.Write(searchKey, &search{percentage: percentage})
}

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
// if Narrow was called and Widen was not since: the same number of nodes of every pool that has them, of the capacity type that the pod
// should have, or of the other one where that has no room; those with the fewest siblings and, as far as can be told cheaply, with room for
// the pod. So no pool is missed however rare it is, and the scores decide among all of them.
func (s *State) Search(logger klog.Logger, cycle fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, Scope) {
	data, err := cycle.Read(searchKey)
	if err != nil {
		return nil, AllNodes
	}
	search := data.(*search)
	if search.scope == AllAfterFew {
		return nil, AllAfterFew
	}
	search.scope = AllNodes
	most := max(minCandidates, len(s.Counter.order)*int(search.percentage)/100)
	if len(s.Counter.order) <= most {
		return nil, AllNodes
	}
	fit := newFit(logger, pod)
	other := decision.Spot
	if s.Plan.Prefer == decision.Spot {
		other = decision.OnDemand
	}
	for _, capacity := range []decision.CapacityType{s.Plan.Prefer, other} {
		if names := s.candidates(capacity, fit, most); len(names) > 0 {
			search.scope = FewNodes
			return &fwk.PreFilterResult{NodeNames: names}, FewNodes
		}
	}
	return nil, AllNodes
}

// candidates returns at most most nodes of a capacity type that take the pod as far as fit and the policy can tell.
func (s *State) candidates(capacity decision.CapacityType, fit *fit, most int) sets.Set[string] {
	names := sets.New[string]()
	pools := s.orderedPools(capacity)
	pools = pools[:min(len(pools), most)]
	for _, p := range pools {
		quota := most / len(pools)
		// Where a pool has more nodes than siblings, some have none: these first.
		few := s.inPool[p.index] / len(p.nodes)
		var rest []*node
		visited := 0
		for ; visited < len(p.nodes) && quota > 0; visited++ {
			n := p.nodes[(p.next+visited)%len(p.nodes)]
			switch {
			case n.facts.Signal != decision.NoSignal || s.admit(n) != decision.Admitted || !fit.on(n.info):
			case n.siblings(s.revision) > few:
				rest = append(rest, n)
			default:
				names.Insert(n.name)
				quota--
			}
		}
		for _, n := range rest[:min(quota, len(rest))] {
			names.Insert(n.name)
		}
		// The next search goes on from here, so that all nodes have their turn.
		p.next = (p.next + visited) % len(p.nodes)
	}
	return names
}

// orderedPools returns the pools of a capacity type that have nodes, as Plan.Rank orders them for this pod; like ones take turns.
func (s *State) orderedPools(capacity decision.CapacityType) []*pool {
	c := s.Counter
	c.searches++
	pools := make([]*pool, 0, len(c.pools))
	for i := range c.pools {
		if p := c.pools[(i+c.searches)%len(c.pools)]; p.capacity == capacity && len(p.nodes) > 0 {
			pools = append(pools, p)
		}
	}
	slices.SortStableFunc(pools, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(s.inZone[a.zone], s.inZone[b.zone]), cmp.Compare(s.inPool[a.index], s.inPool[b.index]))
	})
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

func (f *fit) on(info fwk.NodeInfo) bool {
	has, used := info.GetAllocatable(), info.GetRequested()
	if len(info.GetPods()) >= has.GetAllowedPodNumber() ||
		f.milliCPU > has.GetMilliCPU()-used.GetMilliCPU() || f.memory > has.GetMemory()-used.GetMemory() {
		return false
	}
	for name, want := range f.extended {
		if want > has.GetScalarResources()[name]-used.GetScalarResources()[name] {
			return false
		}
	}
	node := info.Node()
	if node.Spec.Unschedulable {
		return false
	}
	if len(node.Spec.Taints) > 0 {
		if _, untolerated := corev1.FindMatchingUntoleratedTaint(f.logger, node.Spec.Taints, f.tolerations, keepsOff, true); untolerated {
			return false
		}
	}
	if f.affinity != nil {
		if match, err := f.affinity.Match(node); err != nil || !match {
			return false
		}
	}
	return true
}

// keepsOff reports whether a taint keeps pods off that do not tolerate it.
func keepsOff(taint *v1.Taint) bool { return taint.Effect != v1.TaintEffectPreferNoSchedule }
