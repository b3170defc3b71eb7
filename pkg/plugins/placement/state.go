package placement

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

const stateKey fwk.StateKey = "spot-aware-scheduler.io/placement"

// State is the decision for one pod in one scheduling cycle. Everything but Placed is set at PreFilter.
type State struct {
	Subject  *kube.Subject
	Settings decision.Settings
	// Invalid are the annotations that were ignored.
	Invalid []decision.InvalidAnnotation
	// Waited is the time since the pod was first found unschedulable, 0 if it never was; the plan was made with it.
	Waited  time.Duration
	Plan    decision.Plan
	Counter *Counter
	// Nominated is the node that preemption has promised the pod, if any.
	Nominated string
	// Placed is what became of the pod; set at Reserve, on the state of the cycle itself.
	Placed *Placement

	revision *revision
	// The revision's pods by pool index, and by zone index; nominees are among them.
	inPool, inZone []int
	nominees       []Nominee
	refusals       *refusals
	preempts       *atomic.Bool       // an eviction was simulated, in any copy of the state
	held           map[*node]struct{} // set by Hold
	// What preemption and nominated pods change, in this copy of the state only.
	moreOnSpot int
	morePools  map[*pool]int
	evicts     bool // pods were removed from the node: preemption is simulated
}

// Nominee is a pod of the revision to which preemption has promised a node, where it is neither assumed nor bound yet.
type Nominee struct {
	UID  types.UID
	Node string
}

// Placement is where and why a pod was placed.
type Placement struct {
	Capacity decision.CapacityType
	Outcome  decision.Outcome
}

// NewState returns the state for subject under settings: it makes the plan from what counter says of the subject's revision. The nominees
// of the revision count as pods on their nodes. counter must not be updated as long as the state is in use.
func NewState(subject *kube.Subject, settings decision.Settings, waiting decision.Waiting, counter *Counter, nominees ...Nominee) *State {
	revision := counter.revisions[subject.RevisionKey]
	s := &State{
		Subject: subject, Settings: settings, Waited: waiting.For, Counter: counter,
		revision: revision,
		inPool:   make([]int, len(counter.pools)),
		inZone:   make([]int, len(counter.zones)),
		nominees: nominees,
		refusals: &refusals{},
		preempts: &atomic.Bool{},
	}
	if revision != nil {
		for _, in := range revision.pools {
			s.inPool[in.pool.index] = in.n
			s.inZone[in.pool.zone] += in.n
		}
	}
	placed := revision.placed()
	for _, nominee := range nominees {
		n := counter.nodes[nominee.Node]
		if n == nil {
			continue
		}
		s.inPool[n.pool.index]++
		s.inZone[n.pool.zone]++
		placed.Add(n.pool.capacity, 1)
	}
	s.Plan = decision.NewPlan(&subject.Pod, settings, placed, waiting)
	return s
}

// Write puts s into the cycle's state.
func (s *State) Write(cycle fwk.CycleState) { cycle.Write(stateKey, s) }

// Read returns the State of this cycle, nil if ReplicaSafety has no opinion on the pod.
func Read(cycle fwk.CycleState) *State {
	data, err := cycle.Read(stateKey)
	if err != nil {
		return nil
	}
	s, _ := data.(*State)
	return s
}

// Clone returns a copy that preemption may change.
func (s *State) Clone() fwk.StateData {
	c := *s
	c.morePools = maps.Clone(s.morePools)
	return &c
}

// Admit decides whether the pod may go to the node of that name. An unknown node is refused as one that is going: the
// snapshot no longer has it.
func (s *State) Admit(nodeName string) decision.Verdict {
	n := s.Counter.nodes[nodeName]
	if n == nil {
		return decision.NodeDrained
	}
	return s.admit(n)
}

func (s *State) admit(n *node) decision.Verdict {
	if s.evicts && n.facts.Capacity.Type == decision.OnDemand && s.Plan.Overflows() {
		return decision.OverflowPreempts
	}
	verdict := s.Plan.Admit(n.facts, s.moreOnSpot, s.onSpotIn(n.pool))
	if _, held := s.held[n]; held {
		return decision.Held(verdict)
	}
	return verdict
}

// AdmitsAll reports whether every node is open to the pod as far as the policy says, also when preemption is simulated: all are on-demand,
// none is about to be removed, and the pod is one of its floor.
func (s *State) AdmitsAll() bool { return s.Counter.special == 0 && !s.Plan.Overflows() }

// Preempts returns what tells, also later, whether preemption may have promised the pod a node after this cycle: an eviction was simulated.
// Where Filter is skipped, none is reported to the State, so MayPreempt must be called.
func (s *State) Preempts() *atomic.Bool { return s.preempts }

// MayPreempt notes that preemption may promise the pod a node without the State being asked.
func (s *State) MayPreempt() { s.preempts.Store(true) }

// RanksAlike reports whether all nodes are as good for the pod: they are alike, and there is nothing to spread from.
func (s *State) RanksAlike() bool { return s.Counter.special == 0 && s.revision == nil }

// Rank returns how good the node of that name is for the pod, by the risks that Counter.UpdateRisks has worked out.
func (s *State) Rank(nodeName string) decision.Rank {
	n := s.Counter.nodes[nodeName]
	if n == nil {
		return 0
	}
	return s.Plan.Rank(n.facts, s.around(n), n.pool.risk)
}

// around counts the siblings around n.
func (s *State) around(n *node) decision.Siblings {
	around := decision.Siblings{OnNode: n.siblings(s.revision), InZone: s.inZone[n.pool.zone]}
	if n.pool.capacity == decision.Spot { // on-demand nodes are not reclaimed with their pool
		around.InPool = s.inPool[n.pool.index]
	}
	return around
}

// Place notes that the pod goes to the node of that name.
func (s *State) Place(nodeName string) {
	if n := s.Counter.nodes[nodeName]; n != nil {
		s.Placed = &Placement{n.facts.Capacity.Type, s.Plan.Outcome(n.facts, s.onSpotIn(n.pool))}
	}
}

// onSpotIn returns how many of the revision stand in p, if it is a spot pool and a cap makes it matter.
func (s *State) onSpotIn(p *pool) int {
	if s.Plan.PoolCap == 0 || p.capacity != decision.Spot {
		return 0
	}
	return s.inPool[p.index] + s.morePools[p]
}

// holds reports whether the pod is on n in the snapshot.
func (n *node) holds(pod types.UID) bool {
	return slices.ContainsFunc(n.info.GetPods(), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod })
}

// Add counts pod on the node of that name as one more, in this copy of the state only; Remove as one less.
func (s *State) Add(pod *v1.Pod, nodeName string)    { s.change(pod, nodeName, 1) }
func (s *State) Remove(pod *v1.Pod, nodeName string) { s.change(pod, nodeName, -1) }

func (s *State) change(pod *v1.Pod, nodeName string, delta int) {
	if delta < 0 && !s.evicts {
		s.evicts = true
		s.preempts.Store(true)
	}
	n := s.Counter.nodes[nodeName]
	if slices.ContainsFunc(s.nominees, func(nominee Nominee) bool { return nominee.UID == pod.UID }) {
		return // counted by NewState
	}
	if delta > 0 && !s.evicts && n != nil && n.holds(pod.UID) {
		return // assumed, and still nominated: counted by the Counter
	}
	if n == nil || n.pool.capacity != decision.Spot || !kube.Live(pod) || kube.RevisionOf(pod) != s.Subject.RevisionKey {
		return
	}
	s.moreOnSpot += delta
	if s.morePools == nil {
		s.morePools = map[*pool]int{}
	}
	s.morePools[n.pool] += delta
}
