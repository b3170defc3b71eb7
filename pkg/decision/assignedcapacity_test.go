package decision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestParseAssignedCapacity(t *testing.T) {
	for _, a := range []decision.AssignedCapacity{decision.AssignedOnDemand, decision.AssignedSpot, decision.AssignedAny} {
		if got := decision.ParseAssignedCapacity(a.String()); got != a {
			t.Errorf("%q is parsed as %d, want %d", a, got, a)
		}
	}
	for _, word := range []string{"", "Spot", "spot ", "none"} {
		if got := decision.ParseAssignedCapacity(word); got != decision.Unassigned {
			t.Errorf("%q is parsed as %d, want %d", word, got, decision.Unassigned)
		}
	}
}

// planInput is the input of NewPlan.
type planInput struct {
	pod      decision.Pod
	settings decision.WorkloadSettings
	placed   decision.PlacedPods
	waiting  decision.WaitTime
}

func drawPlan(t *rapid.T) planInput {
	a := planInput{
		pod: decision.Pod{OnlySpot: rapid.Bool().Draw(t, "onlySpot"), Workload: decision.Workload{
			Desired: rapid.IntRange(0, 8).Draw(t, "desired"), Ordered: rapid.Bool().Draw(t, "ordered"), Ordinal: rapid.IntRange(-1, 8).Draw(t, "ordinal"),
		}},
		settings: decision.WorkloadSettings{
			MinOnDemand: quantities().Draw(t, "minOnDemand"), FallbackAfter: rapid.SampledFrom([]time.Duration{decision.Never, time.Minute}).Draw(t, "fallbackAfter"),
			Overflow:   decision.OverflowPolicy(rapid.IntRange(0, 1).Draw(t, "overflow")),
			Exemptions: decision.ExemptionPolicy(rapid.IntRange(0, 1).Draw(t, "exemptions")),
		},
		placed:  decision.PlacedPods{Spot: rapid.IntRange(0, 8).Draw(t, "spot"), OnDemand: rapid.IntRange(0, 8).Draw(t, "on-demand")},
		waiting: decision.WaitTime{For: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "waited")},
	}
	a.pod.OnlyOnDemand = !a.pod.OnlySpot && rapid.Bool().Draw(t, "onlyOnDemand")
	return a
}

func (a *planInput) plan() decision.Plan {
	return decision.NewPlan(&a.pod, a.settings, a.placed, a.waiting)
}

var (
	spotNode     = decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.NewPool("m5", "a")}
	onDemandNode = decision.Node{Capacity: decision.Capacity{Type: decision.OnDemand}}
)

// A forged assignment has no benefit: it admits the pod to no other node and lets it preempt no
// more pods. It also does not prevent the pod from running, unless overflow is Never.
func TestAssignmentGrantsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawPlan(t)
		without := a.plan()
		a.pod.Assigned = decision.AssignedCapacity(rapid.IntRange(1, 3).Draw(t, "assigned"))
		with := a.plan()
		for _, node := range []decision.Node{spotNode, onDemandNode} {
			before, after := without.Admit(node, 0, 0), with.Admit(node, 0, 0)
			switch lost := before == decision.Admitted && after != decision.Admitted; {
			case before != decision.Admitted && after == decision.Admitted:
				t.Fatalf("assigned %s: it admits the pod to a node of type %s that refuses the pod without it: %s", a.pod.Assigned, node.Capacity.Type, without.Reason(before))
			case lost && node == spotNode && !without.Exempt:
				t.Fatalf("assigned %s: refused on spot: %s", a.pod.Assigned, with.Reason(after))
			case lost && node == onDemandNode && (a.settings.Overflow == decision.AllowOverflow || !with.AdmitsSpot()):
				t.Fatalf("assigned %s: refused on on-demand: %s", a.pod.Assigned, with.Reason(after))
			}
		}
		if without.Overflows() && !with.Overflows() {
			t.Fatalf("assigned %s: the pod may preempt on on-demand only because of the assignment", a.pod.Assigned)
		}
		if with.Floor != without.Floor || with.Budget != without.Budget || with.Grant != without.Grant {
			t.Fatalf("assigned %s: %+v, without %+v", a.pod.Assigned, with, without)
		}
	})
}

// A pod that was assigned beyond the floor and refused on-demand may become feasible there when a
// sibling is bound to spot. MayUnblockSiblings must report this for every such sibling.
func TestMayUnblockSiblingsMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawPlan(t)
		sibling := a.plan()
		a.pod.Assigned = decision.AssignedCapacity(rapid.IntRange(0, 3).Draw(t, "assigned"))
		before := a.plan()
		a.placed.Spot++
		after := a.plan()
		opens := before.Admit(onDemandNode, 0, 0) != decision.Admitted && after.Admit(onDemandNode, 0, 0) == decision.Admitted
		opens = opens && !a.pod.OnlySpot
		if opens && !sibling.MayUnblockSiblings() {
			t.Fatalf("%+v admits on-demand, and %+v did not", after, before)
		}
		if opens && !before.DependsOnSiblings() {
			t.Fatalf("%+v depends on siblings, but DependsOnSiblings is false", before)
		}
	})
}

// No message announces a spot node to a pod that admits no spot node.
func TestWaitsWithoutSpot(t *testing.T) {
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute, RolloutRelief: 30 * time.Second}
	pod := decision.Pod{OnlyOnDemand: true, Assigned: decision.AssignedOnDemand, Workload: decision.Workload{Kind: "Deployment", Revision: "shop/web-5d9f", Desired: 5}}
	for _, waited := range []time.Duration{0, time.Second, time.Hour} {
		plan := decision.NewPlan(&pod, settings, decision.PlacedPods{Spot: 3}, decision.WaitTime{For: waited, OlderRevisionOnDemand: true})
		const want = "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room)"
		if got := plan.WaitReason(); got != want {
			t.Errorf("after %s: %q, want %q", waited, got, want)
		}
		if !plan.RequiresOnDemand() {
			t.Errorf("after %s: RequiresOnDemand is false, want true", waited)
		}
		for v := range decision.Verdict(decision.Verdicts) {
			if reason := plan.Reason(v); strings.Contains(reason, "may run on any spot node") {
				t.Errorf("after %s: %s", waited, reason)
			}
		}
	}
}

// The replacement of a pod inherits no assignment and no grant.
func TestReplacement(t *testing.T) {
	for name, test := range map[string]struct{ pod, want decision.Pod }{
		"spot":      {decision.Pod{Namespace: "shop", OnlySpot: true, Assigned: decision.AssignedSpot, Granted: decision.GrantFallback}, decision.Pod{Namespace: "shop"}},
		"any":       {decision.Pod{OnlySpot: true, Assigned: decision.AssignedAny}, decision.Pod{OnlySpot: true}},
		"on-demand": {decision.Pod{OnlyOnDemand: true, Assigned: decision.AssignedOnDemand}, decision.Pod{OnlyOnDemand: true}},
		"nothing":   {decision.Pod{OnlySpot: true}, decision.Pod{OnlySpot: true}},
	} {
		before := test.pod
		if diff := cmp.Diff(test.want, *test.pod.Replacement()); diff != "" {
			t.Errorf("%s: replacement (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(before, test.pod); diff != "" {
			t.Errorf("%s: the pod was modified (-before +after):\n%s", name, diff)
		}
	}
}

func TestAssignmentAdmits(t *testing.T) {
	for assignment, want := range map[decision.AssignedCapacity]struct{ onDemand, spot bool }{
		decision.Unassigned:       {true, true},
		decision.AssignedAny:      {true, true},
		decision.AssignedOnDemand: {true, false},
		decision.AssignedSpot:     {false, true},
	} {
		if got := assignment.Admits(decision.OnDemand); got != want.onDemand {
			t.Errorf("%q admits on-demand: %t", assignment, got)
		}
		if got := assignment.Admits(decision.Spot); got != want.spot {
			t.Errorf("%q admits spot: %t", assignment, got)
		}
	}
}
