package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// candidate describes the plan for a pod of shop/web with 5 replicas, a floor of 2 and a pool cap
// of 2.
type candidate struct {
	ordered, holdsUpLater bool
	onlySpot, anyway      bool
	ignoreExemptions      bool
	noOverflow            bool
	ordinal               int
	placed                decision.PlacedPods
	waiting               decision.WaitTime
	fallbackAfter         time.Duration
}

func (c candidate) plan() decision.Plan {
	pod := &decision.Pod{OnlySpot: c.onlySpot, Workload: decision.Workload{
		Kind: "Deployment", Revision: "shop/web-5d9f", Desired: 5, Ordered: c.ordered, Ordinal: c.ordinal, BlocksLater: c.holdsUpLater,
	}}
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), MaxPerPool: new(decision.Count(2)), FallbackAfter: decision.Never}
	if c.fallbackAfter != 0 {
		settings.FallbackAfter = c.fallbackAfter
	}
	if c.anyway {
		settings.WhenUnsatisfiable = decision.ScheduleAnyway
	}
	if c.ignoreExemptions {
		settings.Exemptions = decision.IgnoreExemptions
	}
	if c.noOverflow {
		settings.Overflow = decision.NeverOverflow
	}
	return decision.NewPlan(pod, settings, c.placed, c.waiting)
}

// Held changes only the verdict Admitted. Other verdicts stay, because the pod is refused anyway.
func TestHeld(t *testing.T) {
	for v := range decision.Verdict(decision.Verdicts) {
		want := v
		if v == decision.Admitted {
			want = decision.NodeReserved
		}
		if got := decision.AdmitReserved(v); got != want {
			t.Errorf("Held(%d) = %d, want %d", v, got, want)
		}
	}
}

func TestAdmit(t *testing.T) {
	var (
		pool       = decision.NewPool("m5.large", "a")
		spot       = decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Pool: pool}
		noPool     = decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}
		onDemand   = decision.Node{Pool: pool}
		settling   = decision.Node{Capacity: decision.Capacity{Type: decision.Spot, Source: decision.Settling}, Pool: pool}
		budgetUsed = decision.PlacedPods{Spot: 3}
	)
	withSignal := func(n decision.Node, class decision.SignalClass) decision.Node {
		n.Signal = class
		return n
	}
	tests := map[string]struct {
		candidate
		node               decision.Node
		morePlaced, inPool int
		want               decision.Verdict
		wantOutcome        decision.Outcome // only if admitted
	}{
		"spot within the budget":               {node: spot, want: decision.Admitted, wantOutcome: decision.InBudget},
		"spot, the last replica of the budget": {node: spot, candidate: candidate{placed: decision.PlacedPods{Spot: 2}}, want: decision.Admitted, wantOutcome: decision.InBudget},
		"spot, budget used up":                 {node: spot, candidate: candidate{placed: budgetUsed}, want: decision.OverBudget},
		"budget used up by a nominated pod":    {node: spot, candidate: candidate{placed: decision.PlacedPods{Spot: 2}}, morePlaced: 1, want: decision.OverBudget},
		"budget used up, minus a victim":       {node: spot, candidate: candidate{placed: budgetUsed}, morePlaced: -1, want: decision.Admitted, wantOutcome: decision.InBudget},
		"on-demand, as floor":                  {node: onDemand, candidate: candidate{placed: budgetUsed}, want: decision.Admitted, wantOutcome: decision.OnFloor},
		"on-demand beyond the floor":           {node: onDemand, candidate: candidate{placed: decision.PlacedPods{OnDemand: 2}}, want: decision.Admitted, wantOutcome: decision.Overflow},
		"on-demand has no cap":                 {node: onDemand, inPool: 9, want: decision.Admitted, wantOutcome: decision.OnFloor},

		"pool full":             {node: spot, inPool: 2, want: decision.PoolFull},
		"pool not full":         {node: spot, inPool: 1, want: decision.Admitted, wantOutcome: decision.InBudget},
		"no pool has no cap":    {node: noPool, inPool: 9, want: decision.Admitted, wantOutcome: decision.InBudget},
		"budget before pool":    {node: spot, candidate: candidate{placed: budgetUsed}, inPool: 9, want: decision.OverBudget},
		"exempt":                {node: spot, candidate: candidate{onlySpot: true, placed: budgetUsed}, want: decision.Admitted, wantOutcome: decision.ByExemption},
		"exempt, in its budget": {node: spot, candidate: candidate{onlySpot: true}, want: decision.Admitted, wantOutcome: decision.ByExemption},
		"ignored, over budget":  {node: spot, candidate: candidate{onlySpot: true, ignoreExemptions: true, placed: budgetUsed}, want: decision.OverBudget},
		"ignored, in its budget": {
			node: spot, candidate: candidate{onlySpot: true, ignoreExemptions: true}, want: decision.Admitted, wantOutcome: decision.InBudget,
		},
		"exempt, pool full": {node: spot, candidate: candidate{onlySpot: true}, inPool: 2, want: decision.PoolFull},

		"ordinal of the floor":     {node: spot, candidate: candidate{ordered: true, ordinal: 1}, want: decision.OnFloorOrdinal},
		"ordinal beyond the floor": {node: spot, candidate: candidate{ordered: true, ordinal: 2, placed: budgetUsed}, want: decision.Admitted, wantOutcome: decision.InBudget},
		"ordinals are not counted": {node: spot, candidate: candidate{ordered: true, ordinal: 1}, morePlaced: -9, want: decision.OnFloorOrdinal},
		"ordinal, pool full":       {node: spot, candidate: candidate{ordered: true, ordinal: 4}, inPool: 2, want: decision.PoolFull},

		"settling, within the budget": {node: settling, want: decision.Admitted, wantOutcome: decision.InBudget},
		"settling, budget used up":    {node: settling, candidate: candidate{placed: budgetUsed}, want: decision.NodeSettling},
		"settling, ordinal of floor":  {node: settling, candidate: candidate{ordered: true}, want: decision.NodeSettling},

		"anyway":                    {node: spot, candidate: candidate{anyway: true, placed: budgetUsed}, inPool: 9, want: decision.Admitted, wantOutcome: decision.ByScheduleAnyway},
		"anyway, over the cap only": {node: spot, candidate: candidate{anyway: true}, inPool: 2, want: decision.Admitted, wantOutcome: decision.ByScheduleAnyway},
		"anyway, within the budget": {node: spot, candidate: candidate{anyway: true}, want: decision.Admitted, wantOutcome: decision.InBudget},
		"fallen back": {
			node: spot, candidate: candidate{placed: budgetUsed, fallbackAfter: time.Second, waiting: decision.WaitTime{For: time.Second}}, inPool: 9,
			want: decision.Admitted, wantOutcome: decision.ByFallback,
		},
		"relieved": {
			node: spot, candidate: candidate{placed: budgetUsed, waiting: decision.WaitTime{For: time.Minute, OlderRevisionOnDemand: true}}, inPool: 9,
			want: decision.Admitted, wantOutcome: decision.ByRolloutRelief,
		},

		"overflow Never, as floor": {node: onDemand, candidate: candidate{noOverflow: true}, want: decision.Admitted, wantOutcome: decision.OnFloor},
		"overflow Never, beyond the floor": {
			node: onDemand, candidate: candidate{noOverflow: true, placed: decision.PlacedPods{OnDemand: 2}}, want: decision.OverflowRefused,
		},
		"overflow Never, beyond the floor, anyway": {
			node: onDemand, candidate: candidate{noOverflow: true, anyway: true, placed: decision.PlacedPods{OnDemand: 2}}, want: decision.OverflowRefused,
		},
		"overflow Never, on spot": {
			node: spot, candidate: candidate{noOverflow: true, placed: decision.PlacedPods{OnDemand: 2}}, want: decision.Admitted, wantOutcome: decision.InBudget,
		},
		"overflow Never, reclaim": {
			node: withSignal(onDemand, decision.Reclaim), candidate: candidate{noOverflow: true, placed: decision.PlacedPods{OnDemand: 2}}, want: decision.NodeReclaimed,
		},
		"overflow Never, ordinal beyond the floor": {
			node: onDemand, candidate: candidate{noOverflow: true, ordered: true, ordinal: 2}, want: decision.OverflowRefused,
		},

		"reclaim":                  {node: withSignal(spot, decision.Reclaim), want: decision.NodeReclaimed},
		"reclaim, on-demand":       {node: withSignal(onDemand, decision.Reclaim), want: decision.NodeReclaimed},
		"reclaim, anyway":          {node: withSignal(spot, decision.Reclaim), candidate: candidate{anyway: true}, want: decision.NodeReclaimed},
		"drain":                    {node: withSignal(spot, decision.Drain), want: decision.NodeDrained},
		"drain, on-demand":         {node: withSignal(onDemand, decision.Drain), want: decision.NodeDrained},
		"drain, exempt":            {node: withSignal(spot, decision.Drain), candidate: candidate{onlySpot: true}, want: decision.NodeDrained},
		"advisory":                 {node: withSignal(spot, decision.Advisory), want: decision.Admitted, wantOutcome: decision.InBudget},
		"advisory, budget used up": {node: withSignal(spot, decision.Advisory), candidate: candidate{placed: budgetUsed}, want: decision.OverBudget},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := test.plan()
			got := plan.Admit(test.node, test.morePlaced, test.inPool)
			if got != test.want {
				t.Fatalf("verdict %d (%s), want %d (%s)", got, plan.Reason(got), test.want, plan.Reason(test.want))
			}
			if got != decision.Admitted || test.morePlaced != 0 {
				return
			}
			if diff := cmp.Diff(test.wantOutcome, plan.Outcome(test.node, test.inPool)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReason pins the wording: users search for it, and the README quotes it.
func TestReason(t *testing.T) {
	tests := map[string]struct {
		candidate
		verdict decision.Verdict
		want    string
	}{
		"admitted":  {verdict: decision.Admitted, want: ""},
		"reclaimed": {verdict: decision.NodeReclaimed, want: "node is being reclaimed"},
		"drained":   {verdict: decision.NodeDrained, want: "node is being drained"},
		"budget": {
			candidate: candidate{placed: decision.PlacedPods{Spot: 3}}, verdict: decision.OverBudget,
			want: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room)",
		},
		"more on spot than the budget, as after a scale-down": {
			candidate: candidate{placed: decision.PlacedPods{Spot: 4}}, verdict: decision.OverBudget,
			want: "spot budget used up: 4 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room)",
		},
		"budget, falling back": {
			candidate: candidate{placed: decision.PlacedPods{Spot: 3}, fallbackAfter: 90 * time.Second}, verdict: decision.OverBudget,
			want: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room, may run on any spot node after 1m30s)",
		},
		"ordinal": {
			candidate: candidate{ordered: true}, verdict: decision.OnFloorOrdinal,
			want: "ordinal belongs to the floor: the first 2 ordinals of shop/web-5d9f must run on on-demand (waits for on-demand room)",
		},
		"ordinal that blocks later ordinals": {
			candidate: candidate{ordered: true, holdsUpLater: true}, verdict: decision.OnFloorOrdinal,
			want: "ordinal belongs to the floor: the first 2 ordinals of shop/web-5d9f must run on on-demand, and later ordinals wait for this one (waits for on-demand room)",
		},
		"settling": {verdict: decision.NodeSettling, want: "node has no capacity label yet and is too young to count as on-demand"},
		"pool": {
			verdict: decision.PoolFull,
			want:    "spot pool full: at most 2 replicas of shop/web-5d9f may run in one pool (waits for room in another spot pool or on on-demand)",
		},
		"pool, only spot": {
			candidate: candidate{onlySpot: true, fallbackAfter: time.Hour}, verdict: decision.PoolFull,
			want: "spot pool full: at most 2 replicas of shop/web-5d9f may run in one pool (waits for room in another spot pool, may run on any spot node after 1h)",
		},
		"budget, only spot, exemptions ignored": {
			candidate: candidate{onlySpot: true, ignoreExemptions: true, placed: decision.PlacedPods{Spot: 3}}, verdict: decision.OverBudget,
			want: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot; its own constraints admit only spot, " +
				"but exemptions are ignored (waits for room in the spot budget)",
		},
		"ordinal, only spot, exemptions ignored": {
			candidate: candidate{onlySpot: true, ignoreExemptions: true, ordered: true, fallbackAfter: time.Hour}, verdict: decision.OnFloorOrdinal,
			want: "ordinal belongs to the floor: the first 2 ordinals of shop/web-5d9f must run on on-demand; its own constraints " +
				"admit only spot, but exemptions are ignored (waits for a lower floor, may run on any spot node after 1h)",
		},
		"pool, only spot, exemptions ignored": {
			candidate: candidate{onlySpot: true, ignoreExemptions: true}, verdict: decision.PoolFull,
			want: "spot pool full: at most 2 replicas of shop/web-5d9f may run in one pool (waits for room in another spot pool)",
		},
		"pool, overflow Never": {
			candidate: candidate{noOverflow: true, placed: decision.PlacedPods{OnDemand: 2}}, verdict: decision.PoolFull,
			want: "spot pool full: at most 2 replicas of shop/web-5d9f may run in one pool (waits for room in another spot pool)",
		},
		"overflow": {
			candidate: candidate{noOverflow: true, fallbackAfter: time.Hour, placed: decision.PlacedPods{OnDemand: 2}}, verdict: decision.OverflowRefused,
			want: "overflow Never: the floor of 2 of shop/web-5d9f is met (waits for room on spot)",
		},
		"overflow, one replica too many": {
			candidate: candidate{noOverflow: true, fallbackAfter: time.Hour, placed: decision.PlacedPods{OnDemand: 2, Spot: 3}}, verdict: decision.OverflowRefused,
			want: "overflow Never: the floor of 2 of shop/web-5d9f is met (waits for another replica to terminate, may run on any spot node after 1h)",
		},
		"five minutes": {
			candidate: candidate{placed: decision.PlacedPods{Spot: 3}, fallbackAfter: 5 * time.Minute}, verdict: decision.OverBudget,
			want: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room, may run on any spot node after 5m)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := test.plan()
			if diff := cmp.Diff(test.want, plan.Reason(test.verdict)); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBudgeted(t *testing.T) {
	counted, ordered := candidate{placed: decision.PlacedPods{Spot: 1}}.plan(), candidate{ordered: true}.plan()
	want := []string{"spot budget of shop/web-5d9f: 1 of 3 used before this pod", "the first 2 ordinals of shop/web-5d9f must run on on-demand"}
	if diff := cmp.Diff(want, []string{counted.BudgetUsage(), ordered.BudgetUsage()}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
