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

// A replica that was assigned beyond the floor does not use on-demand while the budget has room for
// it.
func TestAssigned(t *testing.T) {
	five := decision.Workload{Kind: "Deployment", Revision: "shop/web-5d9f", Desired: 5}
	ordinal := func(n int) decision.Workload {
		return decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Desired: 5, Ordered: true, Ordinal: n}
	}
	type outline struct {
		Prefer                          decision.CapacityType
		Overflows, Spot, OnDemand, Must bool
	}
	onSpot, onAnything := outline{Prefer: decision.Spot, Overflows: true, Spot: true}, outline{Prefer: decision.Spot, Overflows: true, Spot: true, OnDemand: true}
	ofFloor := outline{OnDemand: true, Must: true}
	for name, test := range map[string]struct {
		pod        decision.Pod
		noOverflow bool // overflow Never
		placed     decision.PlacedPods
		want       outline
		waits      string
	}{
		"not assigned":       {pod: decision.Pod{Workload: five}, want: outline{Spot: true, OnDemand: true}},
		"assigned on-demand": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedOnDemand}, want: outline{Spot: true, OnDemand: true}},
		"any, with a spread": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny, SpreadByAffinity: true}, noOverflow: true, want: outline{Spot: true, OnDemand: true}},
		"any, with a spread, the floor is met": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny, SpreadByAffinity: true}, noOverflow: true,
			placed: decision.PlacedPods{OnDemand: 2}, want: onSpot},
		"any, with a spread to on-demand, the floor is met": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny, SpreadByAffinity: true, SpreadToOnDemand: true},
			noOverflow: true, placed: decision.PlacedPods{OnDemand: 2}, want: onAnything},
		"any, no sibling placed": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, want: onAnything},
		"spot, no sibling placed": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedSpot}, want: onAnything,
			waits: "no feasible node: the pod may run on on-demand and on spot"},
		"any, overflow Never": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, noOverflow: true, want: onSpot,
			waits: "overflow Never: the pod was assigned beyond the floor of 2 of shop/web-5d9f (waits for room on spot)"},
		"spot, overflow Never": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedSpot}, noOverflow: true, want: onSpot},
		"the floor is met, overflow Never": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, noOverflow: true,
			placed: decision.PlacedPods{OnDemand: 2}, want: onSpot, waits: "overflow Never: the floor of 2 of shop/web-5d9f is met (waits for room on spot)"},
		// The floor was raised after the assignment, so the replica is needed on on-demand.
		"the budget is used up":                 {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, placed: decision.PlacedPods{Spot: 3, OnDemand: 1}, want: ofFloor},
		"the budget is used up, overflow Never": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, noOverflow: true, placed: decision.PlacedPods{Spot: 3, OnDemand: 1}, want: ofFloor},
		"one replica too many": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny}, placed: decision.PlacedPods{Spot: 3, OnDemand: 2},
			want: outline{Overflows: true, OnDemand: true, Must: true}},
		"affinity added by the assignment": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedSpot, OnlySpot: true},
			want: onSpot, waits: "no feasible node: the pod was assigned spot and admits no on-demand node"},
		"affinity added by the assignment, budget used up": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedSpot, OnlySpot: true},
			placed: decision.PlacedPods{Spot: 3}, want: outline{},
			waits: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot; the pod was assigned spot, and admits no on-demand node (waits for room in the spot budget)"},
		"own affinity to spot, budget used up": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny, OnlySpot: true},
			placed: decision.PlacedPods{Spot: 3}, want: outline{Prefer: decision.Spot, Spot: true}},
		"admits only on-demand": {pod: decision.Pod{Workload: five, Assigned: decision.AssignedAny, OnlyOnDemand: true}, noOverflow: true,
			want: outline{Prefer: decision.OnDemand, Spot: true, OnDemand: true}, waits: "no feasible node: the pod's own constraints admit only on-demand"},
		"ordinal of the floor":     {pod: decision.Pod{Workload: ordinal(1), Assigned: decision.AssignedSpot}, noOverflow: true, want: ofFloor},
		"ordinal beyond the floor": {pod: decision.Pod{Workload: ordinal(2), Assigned: decision.AssignedSpot}, noOverflow: true, want: onSpot},
	} {
		t.Run(name, func(t *testing.T) {
			settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never, RolloutRelief: decision.Never}
			if test.noOverflow {
				settings.Overflow = decision.NeverOverflow
			}
			plan := decision.NewPlan(&test.pod, settings, test.placed, decision.WaitTime{})
			got := outline{plan.Prefer, plan.Overflows(), plan.AdmitsSpot(), plan.AdmitsOnDemand(), plan.RequiresOnDemand()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if got := plan.WaitReason(); test.waits != "" && got != test.waits {
				t.Errorf("waits: %q, want %q", got, test.waits)
			}
		})
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
func TestMayFreeSiblingsMissesNothing(t *testing.T) {
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
			t.Fatalf("%+v depends on siblings, but Counted is false", before)
		}
	})
}

// A grant of the controller applies from the first attempt and overrides settings of "never".
func TestGranted(t *testing.T) {
	web := decision.Workload{Kind: "Deployment", Revision: "shop/web-5d9f", Desired: 1}
	for name, test := range map[string]struct {
		pod      decision.Pod
		settings decision.WorkloadSettings
		waiting  decision.WaitTime
		want     decision.Grant
		outcome  decision.Outcome
	}{
		"nothing":             {pod: decision.Pod{}, want: decision.NotGranted},
		"fallback":            {pod: decision.Pod{Granted: decision.GrantFallback}, want: decision.GrantFallback, outcome: decision.ByFallback},
		"rollout relief":      {pod: decision.Pod{Granted: decision.GrantRolloutRelief}, want: decision.GrantRolloutRelief, outcome: decision.ByRolloutRelief},
		"granted and waited":  {pod: decision.Pod{Granted: decision.GrantRolloutRelief}, settings: decision.WorkloadSettings{FallbackAfter: 1}, waiting: decision.WaitTime{For: 1}, want: decision.GrantRolloutRelief, outcome: decision.ByRolloutRelief},
		"waited, not granted": {settings: decision.WorkloadSettings{FallbackAfter: 1}, waiting: decision.WaitTime{For: 1}, want: decision.GrantFallback, outcome: decision.ByFallback},
		"ScheduleAnyway":      {pod: decision.Pod{Granted: decision.GrantFallback}, settings: decision.WorkloadSettings{WhenUnsatisfiable: decision.ScheduleAnyway}, want: decision.GrantScheduleAnyway, outcome: decision.ByScheduleAnyway},
		"waited, admits only on-demand": {pod: decision.Pod{OnlyOnDemand: true}, settings: decision.WorkloadSettings{FallbackAfter: 1},
			waiting: decision.WaitTime{For: time.Hour, OlderRevisionOnDemand: true}, want: decision.NotGranted},
	} {
		t.Run(name, func(t *testing.T) {
			if test.settings.FallbackAfter == 0 {
				test.settings.FallbackAfter, test.settings.RolloutRelief = decision.Never, decision.Never
			}
			test.settings.MinOnDemand, test.pod.Workload = decision.Count(1), web
			plan := decision.NewPlan(&test.pod, test.settings, decision.PlacedPods{}, test.waiting)
			if plan.Grant != test.want || plan.AdmitsSpot() != (test.want != decision.NotGranted) {
				t.Errorf("grant %d, spot %t; want %d", plan.Grant, plan.AdmitsSpot(), test.want)
			}
			if got := plan.Outcome(spotNode, 0); test.outcome != "" && got != test.outcome {
				t.Errorf("outcome %s, want %s", got, test.outcome)
			}
		})
	}
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
			t.Errorf("after %s: MustHaveOnDemand is false, want true", waited)
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
