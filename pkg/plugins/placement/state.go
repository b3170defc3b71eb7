package placement

import (
	"maps"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
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
	// Placed is what became of the pod; set at Reserve, on the state of the cycle itself.
	Placed *Placement

	revision *Revision
	reasons  *[decision.Verdicts]atomic.Pointer[string]
	// What preemption and nominated pods change, in this copy of the state only.
	moreOnSpot int
	morePools  map[decision.Pool]int
}

// Placement is where and why a pod was placed.
type Placement struct {
	Capacity decision.CapacityType
	Outcome  decision.Outcome
}

// NewState returns the state for subject under settings: it makes the plan from what counter says of the subject's revision. counter
// must not be updated as long as the state is in use.
func NewState(subject *kube.Subject, settings decision.Settings, waiting decision.Waiting, counter *Counter) *State {
	return &State{
		Subject: subject, Settings: settings, Waited: waiting.For, Counter: counter,
		Plan:     decision.NewPlan(&subject.Pod, settings, counter.Placed(subject.RevisionUID), waiting),
		revision: counter.revisions[subject.RevisionUID],
		reasons:  new([decision.Verdicts]atomic.Pointer[string]),
	}
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
	return s.Plan.Admit(n.facts, s.moreOnSpot, s.inPool(n.facts.Pool))
}

// Rank returns how good the node of that name is for the pod, given the risk of the spot pools.
func (s *State) Rank(nodeName string, risk map[decision.Pool]float64) decision.Rank {
	n := s.Counter.nodes[nodeName]
	if n == nil {
		return 0
	}
	var poolRisk float64
	if n.facts.Capacity.Type == decision.Spot {
		poolRisk = risk[n.facts.Pool]
	}
	return s.Plan.Rank(n.facts, s.revision.siblings(n), poolRisk)
}

// Place notes that the pod goes to the node of that name.
func (s *State) Place(nodeName string) {
	if facts, ok := s.Counter.Node(nodeName); ok {
		s.Placed = &Placement{facts.Capacity.Type, s.Plan.Outcome(facts, s.inPool(facts.Pool))}
	}
}

func (s *State) inPool(pool decision.Pool) int {
	if s.Plan.PoolCap == 0 {
		return 0 // it does not matter, and most workloads have no cap
	}
	n := s.morePools[pool]
	if s.revision != nil {
		n += s.revision.pools[pool]
	}
	return n
}

// Add counts pod on the node of that name as one more, in this copy of the state only; Remove as one less.
func (s *State) Add(pod *v1.Pod, nodeName string)    { s.change(pod, nodeName, 1) }
func (s *State) Remove(pod *v1.Pod, nodeName string) { s.change(pod, nodeName, -1) }

func (s *State) change(pod *v1.Pod, nodeName string, delta int) {
	facts, ok := s.Counter.Node(nodeName)
	if !ok || facts.Capacity.Type != decision.Spot || !kube.Live(pod) || kube.RevisionOf(pod) != s.Subject.RevisionUID {
		return
	}
	s.moreOnSpot += delta
	if s.morePools == nil {
		s.morePools = map[decision.Pool]int{}
	}
	s.morePools[facts.Pool] += delta
}

// Reason says a verdict in words. The words are made once for all nodes of a cycle: Filter runs on thousands of them, in parallel.
func (s *State) Reason(v decision.Verdict) string {
	made := &s.reasons[v]
	if text := made.Load(); text != nil {
		return *text
	}
	text := s.Plan.Reason(v)
	made.Store(&text)
	return text
}
