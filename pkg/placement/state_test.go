package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// stateOf returns the state of a pod of the ReplicaSet "rs" on these nodes. Two of three replicas
// may run on spot, and two in a pool.
func stateOf(nodes ...*nodeInfo) *State {
	c := NewCounter(testReader())
	c.Update(snapshot(nodes...), now)
	subject := &workload.Subject{RevisionKey: replicaSetKey("rs"),
		Pod: decision.Pod{Workload: decision.Workload{Kind: "Deployment", Revision: "shop/rs", Desired: 3}}}
	perPool := decision.Count(2)
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(1), MaxPerPool: &perPool, FallbackAfter: decision.Never}
	return NewState(subject, settings, decision.WaitTime{}, c)
}

func verdicts(s *State, nodes ...string) map[string]decision.Verdict {
	got := map[string]decision.Verdict{}
	for _, name := range nodes {
		got[name] = s.Admit(name)
	}
	return got
}

func TestStateAdmit(t *testing.T) {
	spotA, spotB, onDemand := nodeOf("spot-a", "spot", "a", podOf("1", "rs")), nodeOf("spot-b", "spot", "b"), nodeOf("on-demand", "on-demand", "a")
	drained := nodeOf("drained", "on-demand", "a")
	drained.node.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted"}}
	cases := map[string]struct {
		change func(*State)
		want   map[string]decision.Verdict
	}{
		"no change": {func(*State) {}, map[string]decision.Verdict{
			"spot-a": decision.Admitted, "spot-b": decision.Admitted, "on-demand": decision.Admitted,
			"drained": decision.NodeDrained, "not in the snapshot": decision.NodeDrained,
		}},
		"one more sibling on spot": {func(s *State) { s.Count(podOf("2", "rs"), "spot-b", 1) }, map[string]decision.Verdict{
			"spot-a": decision.OverBudget, "spot-b": decision.OverBudget, "on-demand": decision.Admitted,
			"drained": decision.NodeDrained, "not in the snapshot": decision.NodeDrained,
		}},
		"one more and one less": {func(s *State) {
			s.Count(podOf("2", "rs"), "spot-b", 1)
			s.Count(podOf("1", "rs"), "spot-a", -1)
		}, map[string]decision.Verdict{
			"spot-a": decision.Admitted, "spot-b": decision.Admitted, "on-demand": decision.Admitted,
			"drained": decision.NodeDrained, "not in the snapshot": decision.NodeDrained,
		}},
		"pods that do not count": {func(s *State) {
			s.Count(podOf("2", "rs"), "on-demand", 1)
			s.Count(podOf("3", "other"), "spot-a", 1)
			s.Count(podOf("4", ""), "spot-a", 1)
			s.Count(terminating(podOf("5", "rs")), "spot-a", 1)
			s.Count(podOf("6", "rs"), "not in the snapshot", 1)
		}, map[string]decision.Verdict{
			"spot-a": decision.Admitted, "spot-b": decision.Admitted, "on-demand": decision.Admitted,
			"drained": decision.NodeDrained, "not in the snapshot": decision.NodeDrained,
		}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := stateOf(spotA, spotB, onDemand, drained)
			test.change(s)
			if diff := cmp.Diff(test.want, verdicts(s, "spot-a", "spot-b", "on-demand", "drained", "not in the snapshot")); diff != "" {
				t.Errorf("Admit (-want +got):\n%s", diff)
			}
		})
	}
}

// A terminating pod does not count, so its removal must not reduce the count.
func TestRemovingATerminatingPodChangesNothing(t *testing.T) {
	going := terminating(podOf("going", "rs"))
	s := stateOf(nodeOf("spot", "spot", "a", podOf("1", "rs"), podOf("2", "rs"), going))
	s.Count(going, "spot", -1)
	if got := s.Admit("spot"); got != decision.OverBudget {
		t.Errorf("Admit = %d, want OverBudget: two live siblings are on spot", got)
	}
}

// The cap of a pool includes the pods that preemption adds and removes in that pool only.
func TestStatePoolCap(t *testing.T) {
	perPool := decision.Count(1)
	c := NewCounter(testReader())
	c.Update(snapshot(nodeOf("spot-a", "spot", "a", podOf("1", "rs")), nodeOf("spot-b", "spot", "b")), now)
	subject := &workload.Subject{RevisionKey: replicaSetKey("rs"), Pod: decision.Pod{Workload: decision.Workload{Desired: 9}}}
	s := NewState(subject, decision.WorkloadSettings{MaxPerPool: &perPool, FallbackAfter: decision.Never}, decision.WaitTime{}, c)
	steps := []struct {
		name   string
		change func()
		want   map[string]decision.Verdict
	}{
		{"no change", func() {}, map[string]decision.Verdict{"spot-a": decision.PoolFull, "spot-b": decision.Admitted}},
		{"taken", func() { s.Count(podOf("1", "rs"), "spot-a", -1) }, map[string]decision.Verdict{"spot-a": decision.Admitted, "spot-b": decision.Admitted}},
		{"added", func() { s.Count(podOf("2", "rs"), "spot-b", 1) }, map[string]decision.Verdict{"spot-a": decision.Admitted, "spot-b": decision.PoolFull}},
	}
	for _, step := range steps {
		step.change()
		if diff := cmp.Diff(step.want, verdicts(s, "spot-a", "spot-b")); diff != "" {
			t.Errorf("%s: Admit (-want +got):\n%s", step.name, diff)
		}
	}
}

// Preemption tries many nodes concurrently, each on a clone. A change of one clone must affect
// neither other clones nor the original.
func TestStateClonesAreIndependent(t *testing.T) {
	s := stateOf(nodeOf("spot", "spot", "a"))
	s.Count(podOf("1", "rs"), "spot", 1)
	first, second := s.Clone().(*State), s.Clone().(*State)
	first.Count(podOf("2", "rs"), "spot", 1)
	second.Count(podOf("1", "rs"), "spot", -1)
	got := []int{s.simulatedOnSpot, first.simulatedOnSpot, second.simulatedOnSpot}
	pool := s.Counter.nodes["spot"].pool
	s.Plan.PoolCap, first.Plan.PoolCap, second.Plan.PoolCap = 1, 1, 1
	inPool := []int{s.onSpotIn(pool), first.onSpotIn(pool), second.onSpotIn(pool)}
	if want := []int{1, 2, 0}; !cmp.Equal(want, got) || !cmp.Equal(want, inPool) {
		t.Errorf("more on spot: %v, in the pool: %v; want %v in the original, the first and the second clone", got, inPool, want)
	}
	if diff := cmp.Diff(decision.PlacedPods{}, s.Counter.Placed(replicaSetKey("rs"))); diff != "" {
		t.Errorf("the counter itself was changed (-want +got):\n%s", diff)
	}
}

func TestStatePlace(t *testing.T) {
	nodes := []*nodeInfo{
		nodeOf("spot-a", "spot", "a", podOf("1", "rs")), nodeOf("spot-b", "spot", "b"), nodeOf("on-demand", "on-demand", "a"),
	}
	cases := map[string]struct {
		change func(*State)
		node   string
		want   *Placement
	}{
		"within budget":       {func(*State) {}, "spot-b", &Placement{decision.Spot, decision.InBudget}},
		"on the floor":        {func(*State) {}, "on-demand", &Placement{decision.OnDemand, decision.OnFloor}},
		"fallback":            {func(s *State) { s.Plan.Budget, s.Plan.Grant = 0, decision.GrantFallback }, "spot-b", &Placement{decision.Spot, decision.ByFallback}},
		"over the cap":        {func(s *State) { s.Plan.PoolCap, s.Plan.Grant = 1, decision.GrantScheduleAnyway }, "spot-a", &Placement{decision.Spot, decision.ByScheduleAnyway}},
		"below the cap":       {func(s *State) { s.Plan.PoolCap, s.Plan.Grant = 1, decision.GrantScheduleAnyway }, "spot-b", &Placement{decision.Spot, decision.InBudget}},
		"not in the snapshot": {func(*State) {}, "gone", nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := stateOf(nodes...)
			test.change(s)
			s.Place(test.node)
			if diff := cmp.Diff(test.want, s.Placement); diff != "" {
				t.Errorf("Placed (-want +got):\n%s", diff)
			}
		})
	}
}

// A node with a sibling ranks below an empty one, a nearer sibling below a farther one, and a risky
// pool below a safe one. Each criterion matters only if the previous ones are equal.
func TestStateRank(t *testing.T) {
	s := stateOf(
		nodeOf("spot with sibling", "spot", "a", podOf("1", "rs")), nodeOf("spot beside it", "spot", "a"), nodeOf("spot elsewhere", "spot", "b"),
		nodeOf("spot, risky", "spot", "c"), nodeOf("floor", "on-demand", "z", podOf("2", "rs")),
	)
	s.Counter.UpdateRisks(map[decision.Pool]float64{{InstanceType: "m", Zone: "c"}: 0.5, {InstanceType: "m", Zone: "z"}: 1}, time.Hour, now)
	order := []string{"spot elsewhere", "spot, risky", "spot beside it", "spot with sibling", "floor", "not in the snapshot"}
	for i := range order[1:] {
		if better, worse := s.Rank(order[i]), s.Rank(order[i+1]); better <= worse {
			t.Errorf("%q (%d) does not rank above %q (%d)", order[i], better, order[i+1], worse)
		}
	}
}

// A revision that the Counter does not know has no siblings.
func TestStateOfAnUnseenRevision(t *testing.T) {
	s := stateOf(nodeOf("spot", "spot", "a", podOf("1", "other")))
	if got := s.Plan.Prefer; got != decision.OnDemand {
		t.Errorf("prefers %s, want on-demand: the floor comes first", got)
	}
	if got := s.Counter.Placed(replicaSetKey("rs")); got != (decision.PlacedPods{}) {
		t.Errorf("Placed = %+v, want none", got)
	}
	if got := s.Admit("spot"); got != decision.Admitted {
		t.Errorf("Admit = %d, want Admitted", got)
	}
}
