package placement

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const stateKey fwk.StateKey = "spot-aware-scheduler.io/placement"

// Attempt is an attempt to place a pod: what is known about the pod and its workload, and the plan.
type Attempt struct {
	Pod      *v1.Pod
	Subject  *workload.Subject
	Settings decision.WorkloadSettings
	// Invalid lists the annotations that were ignored.
	Invalid []decision.InvalidAnnotation
	// Waited is the time since the pod was first found unschedulable; 0 if it never was. It is an
	// input of the plan.
	Waited time.Duration
	Plan   decision.Plan
}

// State is the decision for one pod in one scheduling cycle. PreFilter sets all fields except
// Placement.
type State struct {
	Attempt
	Counter *Counter
	// Unblocked is View.Unblocked.
	Unblocked bool
	// NominatedNode is the node that preemption nominated for the pod, if any.
	NominatedNode string
	// Placement is the placement of the pod. Reserve sets it on the state of the cycle itself, not
	// on a copy.
	Placement *Placement
	// MayPreempt is set when preemption may nominate a node for the pod. It remains valid after the
	// cycle. If Filter is skipped, the State sees no simulated eviction, so the caller must set it.
	MayPreempt *atomic.Bool

	revision *revision
	// These count the revision's pods by pool index and by zone index, including unbound pods.
	inPool, inZone []int
	unbound        []UnboundPod
	refusals       *refusals
	reserved       map[*nodeState]struct{} // set by reserveUnlabeled
	// The fields below record simulated changes, by preemption and nominated pods, in this copy
	// only.
	simulatedOnSpot     int
	simulatedInPool     map[*pool]int
	simulatesPreemption bool // pods were removed from a node: preemption is simulated
}

// UnboundPod is a pod of the revision that counts although it is neither assumed nor bound yet.
type UnboundPod struct {
	Pod *v1.Pod
	// Node is the node that the pod is nominated to. It is "" if an extender approved the pod.
	Node string
	// Approved is how an approved pod counts, by capacity type, and Pools lists the spot pools
	// in which it counts.
	Approved decision.PlacedPods
	Pools    []decision.SpreadPool
}

// Placement records the capacity type and the reason of a pod's placement.
type Placement struct {
	Capacity decision.CapacityType
	Outcome  decision.Outcome
}

// NewState returns the state for subject under settings. It creates the plan from the counts of the
// subject's revision in counter. The unbound pods of the revision count too. The caller must not
// update counter while the state is in use.
func NewState(subject *workload.Subject, settings decision.WorkloadSettings, waiting decision.WaitTime, counter *Counter,
	unbound ...UnboundPod) *State {
	revision := counter.revisions[subject.RevisionKey]
	s := &State{
		Attempt:    Attempt{Subject: subject, Settings: settings, Waited: waiting.For},
		Counter:    counter,
		revision:   revision,
		inPool:     make([]int, len(counter.pools)),
		inZone:     make([]int, len(counter.zones)),
		unbound:    unbound,
		refusals:   &refusals{},
		MayPreempt: &atomic.Bool{},
	}
	if revision != nil {
		for _, in := range revision.pools {
			s.inPool[in.pool.index] = in.n
			s.inZone[in.pool.zone] += in.n
		}
	}
	placed := revision.placed()
	for _, pod := range unbound {
		placed.Spot += pod.Approved.Spot
		placed.OnDemand += pod.Approved.OnDemand
		for _, key := range pod.Pools {
			if p := counter.poolOf[key]; p != nil {
				s.inPool[p.index]++
			}
		}
		n := counter.nodes[pod.Node]
		if n == nil {
			continue
		}
		s.inPool[n.pool.index]++
		s.inZone[n.pool.zone]++
		placed.Add(n.pool.key.Capacity, 1)
	}
	s.Plan = decision.NewPlan(&subject.Pod, settings, placed, waiting)
	return s
}

// Decide makes the decision for the pod of an attempt, which has no Waited and Plan yet. waiting is
// the View of the pod. unbound has the pods of its revision that count in addition to the pods
// in the Counter. volumesOf is as in workload.VolumesOf.
func (c *Counter) Decide(a Attempt, waiting View, owners *workload.Owners, volumesOf func(*v1.Pod) []*v1.PersistentVolume,
	now time.Time, unbound ...UnboundPod) (*State, error) {
	waited, err := c.waitTime(&a, waiting.GangSince, owners, now)
	if err != nil {
		return nil, err
	}
	state := NewState(a.Subject, a.Settings, waited, c, unbound...)
	if c.Evidence.Judge(a.Pod, volumesOf, &a.Subject.Pod, &state.Plan) {
		state = NewState(a.Subject, a.Settings, waited, c, unbound...)
	}
	state.Pod, state.Invalid, state.Unblocked = a.Pod, a.Invalid, waiting.Unblocked
	state.reserveUnlabeled(waiting.onDemandFits)
	return state, nil
}

// waitTime returns how long the pod, or its gang, has waited at now. since is View.GangSince.
// waitTime looks up other pods only if the waiting time suffices for a Grant.
func (c *Counter) waitTime(a *Attempt, since time.Time, owners *workload.Owners, now time.Time) (decision.WaitTime, error) {
	if since.IsZero() {
		return decision.WaitTime{}, nil
	}
	waited := decision.WaitTime{For: now.Sub(since)}
	relief := a.Settings.ReliefDue(waited.For)
	if relief || a.Settings.FallbackDue(waited.For) {
		waited.Healing = owners.HasReleased(a.Subject.RevisionKey, workload.HealReason, now)
	}
	if !relief {
		return waited, nil
	}
	older, err := owners.OlderRevisions(a.Subject)
	waited.OlderRevisionOnDemand = slices.ContainsFunc(older, func(revision workload.OwnerKey) bool { return c.Placed(revision).OnDemand > 0 })
	return waited, err
}

// Write stores s in the cycle's state.
func (s *State) Write(cycle fwk.CycleState) { cycle.Write(stateKey, s) }

// Read returns the State of this cycle; nil if the policy of ReplicaSafety does not apply to the
// pod.
func Read(cycle fwk.CycleState) *State {
	data, _ := cycle.Read(stateKey)
	s, _ := data.(*State)
	return s
}

// Clone returns a copy that preemption may change.
func (s *State) Clone() fwk.StateData {
	c := *s
	c.simulatedInPool = maps.Clone(s.simulatedInPool)
	return &c
}

// Admit returns the verdict for the pod on the named node. It refuses an unknown node as drained,
// because the node is no longer in the snapshot.
func (s *State) Admit(nodeName string) decision.Verdict {
	n := s.Counter.nodes[nodeName]
	if n == nil {
		return decision.NodeDrained
	}
	return s.admit(n)
}

func (s *State) admit(n *nodeState) decision.Verdict {
	if s.simulatesPreemption && n.facts.Capacity.Type == decision.OnDemand && s.Plan.Overflows() {
		return decision.OverflowPreempts
	}
	verdict := s.Plan.Admit(n.facts, s.simulatedOnSpot, s.onSpotIn(n.pool))
	if _, reserved := s.reserved[n]; reserved {
		return decision.AdmitReserved(verdict)
	}
	return verdict
}

// AdmitsAll reports whether the policy admits the pod on every node, even if preemption is
// simulated: all nodes are on-demand without an interruption signal, and the pod is within its
// workload's floor.
func (s *State) AdmitsAll() bool { return s.Counter.spotOrSignaled == 0 && !s.Plan.Overflows() }

// RanksAlike reports whether all nodes have the same rank for the pod: all nodes are on-demand
// without a signal, and the pod has no siblings to spread from.
func (s *State) RanksAlike() bool { return s.Counter.spotOrSignaled == 0 && s.revision == nil }

// Rank returns the rank of the named node for the pod, using the risks of Counter.UpdateRisks.
func (s *State) Rank(nodeName string) decision.Rank {
	n := s.Counter.nodes[nodeName]
	if n == nil {
		return 0
	}
	return s.Plan.Rank(n.facts, s.siblingsAround(n), n.pool.risk)
}

func (s *State) siblingsAround(n *nodeState) decision.Siblings {
	around := decision.Siblings{OnNode: n.siblings(s.revision), InZone: s.inZone[n.pool.zone]}
	if n.pool.key.Capacity == decision.Spot { // on-demand nodes are not reclaimed with their pool
		around.InPool = s.inPool[n.pool.index]
	}
	return around
}

// InCappedPools returns the number of the revision's pods in each spot pool; nil if no pool cap
// applies.
func (s *State) InCappedPools() map[decision.SpreadPool]int {
	if s.Plan.PoolCap == 0 {
		return nil
	}
	counts := map[decision.SpreadPool]int{}
	for i, n := range s.inPool {
		if p := s.Counter.pools[i]; n > 0 && p.key.Capacity == decision.Spot {
			counts[p.key] = n
		}
	}
	return counts
}

// LogFields returns the log fields of the pod and its plan. They include the replicas of its
// revision that were placed before it, the budget of the revision and the floor of the workload.
func (s *State) LogFields() []any {
	w, placed := &s.Subject.Pod.Workload, s.Plan.Placed()
	return []any{
		"pod", klog.KObj(s.Pod), "workload", w.Revision, "desired", w.Desired, "floor", s.Plan.Floor, "onDemand", placed.OnDemand,
		"spot", placed.Spot, "spotBudget", s.Plan.Budget,
	}
}

// Place records that the scheduler chose the named node.
func (s *State) Place(nodeName string) {
	if n := s.Counter.nodes[nodeName]; n != nil {
		s.Placement = &Placement{n.facts.Capacity.Type, s.Plan.Outcome(n.facts, s.onSpotIn(n.pool))}
	}
}

// onSpotIn returns the number of the revision's pods in p. It returns 0 if p is not a spot pool or
// no pool cap applies.
func (s *State) onSpotIn(p *pool) int {
	if s.Plan.PoolCap == 0 || p.key.Capacity != decision.Spot {
		return 0
	}
	return s.inPool[p.index] + s.simulatedInPool[p]
}

// SimulatePreemption makes Admit refuse the nodes on which the pod must not preempt other pods, in
// this copy of the state only. A simulated removal has the same effect.
func (s *State) SimulatePreemption() { s.simulatesPreemption = true }

// Count counts pod as one more (delta 1) or one less (-1) on the named node, in this copy of the
// state only.
func (s *State) Count(pod *v1.Pod, nodeName string, delta int) {
	if delta < 0 && !s.simulatesPreemption {
		s.simulatesPreemption = true
		s.MayPreempt.Store(true)
	}
	n := s.Counter.nodes[nodeName]
	if slices.ContainsFunc(s.unbound, func(other UnboundPod) bool { return other.Pod.UID == pod.UID }) {
		return // already counted by NewState
	}
	if delta > 0 && !s.simulatesPreemption && n != nil && hasPod(n.info, pod.UID) {
		return // already counted by the Counter
	}
	if n == nil || n.pool.key.Capacity != decision.Spot || !workload.Live(pod) || workload.RevisionOf(pod) != s.Subject.RevisionKey {
		return
	}
	s.simulatedOnSpot += delta
	if s.simulatedInPool == nil {
		s.simulatedInPool = map[*pool]int{}
	}
	s.simulatedInPool[n.pool] += delta
}
