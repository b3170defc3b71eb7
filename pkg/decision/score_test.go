package decision_test

import (
	"cmp"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// place is the input of Rank for one node.
type place struct {
	Node     decision.Node
	Siblings decision.Siblings
	Risk     float64
}

// spotPlan returns a plan that prefers spot and has a pool cap of 2 as a preference.
func spotPlan() decision.Plan {
	pod := &decision.Pod{Workload: decision.Workload{Kind: "Deployment", Desired: 100}}
	settings := decision.WorkloadSettings{MaxPerPool: new(decision.Count(2)), WhenUnsatisfiable: decision.ScheduleAnyway}
	return decision.NewPlan(pod, settings, decision.PlacedPods{}, decision.WaitTime{})
}

func (p place) rank() decision.Rank {
	plan := spotPlan()
	return plan.Rank(p.Node, p.Siblings, p.Risk)
}

func places() *rapid.Generator[place] {
	return rapid.Custom(func(t *rapid.T) place {
		few := rapid.IntRange(0, 4)
		return place{
			Node: decision.Node{
				Capacity: rapid.SampledFrom([]decision.Capacity{
					{Type: decision.OnDemand}, {Type: decision.Spot}, {Type: decision.Spot, Source: decision.Settling},
				}).Draw(t, "capacity"),
				Signal: decision.SignalClass(rapid.IntRange(0, 1).Draw(t, "signal")),
				Pool:   decision.NewPool(rapid.SampledFrom([]string{"m5", ""}).Draw(t, "instance type"), "a"),
			},
			Siblings: decision.Siblings{OnNode: few.Draw(t, "on node"), InZone: few.Draw(t, "in zone"), InPool: few.Draw(t, "in pool")},
			Risk:     float64(rapid.IntRange(0, 10).Draw(t, "risk")) / 10,
		}
	})
}

// compare compares two nodes for a pod of spotPlan by the priorities in policy.md.
func (p place) compare(other place) int {
	first := func(p place) int {
		switch {
		case p.Node.Signal == decision.Advisory || p.Node.Capacity.Source == decision.Settling:
			return 0
		case p.Node.Capacity.Type == decision.OnDemand:
			return 1
		}
		return 2
	}
	settling := func(p place) int { return count(p.Node.Capacity.Source == decision.Settling) }
	full := func(p place) int {
		return count(p.Node.Capacity.Type == decision.Spot && p.Node.Pool != decision.Pool{} && p.Siblings.InPool >= 2)
	}
	return cmp.Or(
		cmp.Compare(first(p), first(other)),
		cmp.Compare(settling(other), settling(p)),
		cmp.Compare(full(other), full(p)),
		cmp.Compare(other.Siblings.OnNode, p.Siblings.OnNode),
		cmp.Compare(other.Siblings.InZone, p.Siblings.InZone),
		cmp.Compare(other.Siblings.InPool, p.Siblings.InPool),
		cmp.Compare(other.Risk, p.Risk),
	)
}

// TestRankFollowsPriorities: ranks have the order of the documented priorities.
func TestRankFollowsPriorities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := places().Draw(t, "a"), places().Draw(t, "b")
		if got, want := cmp.Compare(a.rank(), b.rank()), a.compare(b); got != want {
			t.Fatalf("ranks %d and %d compare as %d, want %d", a.rank(), b.rank(), got, want)
		}
	})
}

// TestRankSaturates: a value beyond a field of Rank equals the field's worst value, and does not
// affect higher fields.
func TestRankSaturates(t *testing.T) {
	spot := decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}
	tests := map[string]struct{ better, worse place }{
		"pool": {
			better: place{Node: spot, Siblings: decision.Siblings{InZone: 1, InPool: 1_000_000}},
			worse:  place{Node: spot, Siblings: decision.Siblings{InZone: 2}},
		},
		"zone": {
			better: place{Node: spot, Siblings: decision.Siblings{OnNode: 1, InZone: 1_000_000}},
			worse:  place{Node: spot, Siblings: decision.Siblings{OnNode: 2}},
		},
		"node": {
			better: place{Node: spot, Siblings: decision.Siblings{OnNode: 1_000_000, InZone: 1_000_000, InPool: 1_000_000}, Risk: 9},
			worse:  place{Node: decision.Node{}},
		},
		"risk": {
			better: place{Node: spot, Risk: 9},
			worse:  place{Node: spot, Siblings: decision.Siblings{InPool: 1}, Risk: -9},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.better.rank() <= test.worse.rank() {
				t.Errorf("%+v is not ranked above %+v", test.better, test.worse)
			}
		})
	}
}

func TestScoreBands(t *testing.T) {
	preferred := func(onNode int) decision.Rank {
		return place{Node: decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}, Siblings: decision.Siblings{OnNode: onNode}}.rank()
	}
	other := func(onNode int) decision.Rank { return place{Siblings: decision.Siblings{OnNode: onNode}}.rank() }
	last := func(onNode int) decision.Rank {
		return place{Node: decision.Node{Signal: decision.Advisory}, Siblings: decision.Siblings{OnNode: onNode}}.rank()
	}
	settling := func(onNode int) decision.Rank {
		node := decision.Node{Capacity: decision.Capacity{Type: decision.Spot, Source: decision.Settling}}
		return place{Node: node, Siblings: decision.Siblings{OnNode: onNode}}.rank()
	}
	tests := map[string]struct{ ranks, want []decision.Rank }{
		"none":                         {ranks: []decision.Rank{}, want: []decision.Rank{}},
		"one":                          {ranks: []decision.Rank{preferred(3)}, want: []decision.Rank{100}},
		"one of another type":          {ranks: []decision.Rank{other(0)}, want: []decision.Rank{54}},
		"one with an advisory":         {ranks: []decision.Rank{last(0)}, want: []decision.Rank{8}},
		"one without a label yet":      {ranks: []decision.Rank{other(1), last(1), settling(0)}, want: []decision.Rank{54, 8, 0}},
		"equal ranks":                  {ranks: []decision.Rank{other(1), other(1)}, want: []decision.Rank{54, 54}},
		"best and worst of each class": {ranks: []decision.Rank{last(1), other(1), preferred(1), preferred(0), other(0), last(0)}, want: []decision.Rank{0, 46, 92, 100, 54, 8}},
		"evenly between":               {ranks: []decision.Rank{preferred(0), preferred(1), preferred(2)}, want: []decision.Rank{100, 96, 92}},
		"by rank, not by number":       {ranks: []decision.Rank{preferred(0), preferred(1), preferred(1), preferred(1), preferred(2)}, want: []decision.Rank{100, 96, 96, 96, 92}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			decision.ScoreBands(test.ranks)
			if diff := gocmp.Diff(test.want, test.ranks); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCapacityTypeOutranksDefaultScorers checks the arithmetic of the bands. With the shipped
// weight of 40, the gap between the worst node of the preferred type and the best of the other type
// exceeds the sum of all default scorers, 15 times 100.
func TestCapacityTypeOutranksDefaultScorers(t *testing.T) {
	const weight, defaultScorers = 40, 1500
	plan := spotPlan()
	crowded := decision.Siblings{OnNode: 9, InZone: 9, InPool: 9}
	ranks := []decision.Rank{
		plan.Rank(decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}, decision.Siblings{}, 0),
		plan.Rank(decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.NewPool("m5", "a")}, crowded, 1),
		plan.Rank(decision.Node{}, decision.Siblings{}, 0),
	}
	decision.ScoreBands(ranks)
	if gap := weight * (ranks[1] - ranks[2]); gap <= defaultScorers {
		t.Errorf("the gap between the bands is worth %d, not more than the default scorers' %d", gap, defaultScorers)
	}
}
