package decision

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// replicasOf parses a line for each revision and a word for each replica:
//
//	o  on on-demand
//	s  on spot
//	-  not bound
//	e  on spot, exempt
//	x  on spot, admits only spot, not exempt
//
// A number after the letter is the ordinal.
func replicasOf(lines ...string) (revisions [][]Replica) {
	for _, line := range lines {
		var replicas []Replica
		for _, word := range strings.Fields(line) {
			r := Replica{Bound: word[0] != '-', Exempt: word[0] == 'e', OnlySpot: word[0] == 'e' || word[0] == 'x'}
			if word[0] != 'o' {
				r.Capacity = Spot
			}
			for _, digit := range word[1:] {
				r.Ordinal = 10*r.Ordinal + int(digit-'0')
			}
			replicas = append(replicas, r)
		}
		revisions = append(revisions, replicas)
	}
	return revisions
}

func TestNewFloorStatus(t *testing.T) {
	cases := map[string]struct {
		desired, floor int
		ordered        bool
		revisions      []string
		want           FloorStatus
	}{
		"floor met":                 {3, 1, false, []string{"o s s"}, FloorStatus{OnDemand: 1, Spot: 2, FloorOnDemand: 1}},
		"over budget":               {3, 1, false, []string{"s s s"}, FloorStatus{FloorOnSpot: 1, Spot: 3, FloorDeficit: 1, OverBudget: 1, Healable: 1}},
		"surplus":                   {3, 1, false, []string{"o o s"}, FloorStatus{OnDemand: 2, Spot: 1, FloorOnDemand: 1, Surplus: 1}},
		"pending floor replica":     {3, 1, false, []string{"- s s"}, FloorStatus{FloorOnSpot: 1, Spot: 2, FloorDeficit: 1, Healable: 1}},
		"scaled down":               {2, 1, false, []string{"s s"}, FloorStatus{FloorOnSpot: 1, Spot: 2, FloorDeficit: 1, OverBudget: 1, Healable: 1}},
		"fewer live than the floor": {5, 3, false, []string{"o s"}, FloorStatus{FloorOnSpot: 1, OnDemand: 1, Spot: 1, FloorOnDemand: 1, FloorDeficit: 1, Healable: 1}},
		"each revision has a budget, the workload has one floor": {3, 1, false, []string{"s s", "s s"},
			FloorStatus{FloorOnSpot: 1, Spot: 4, FloorDeficit: 1, Healable: 1}},
		"two revisions over budget":    {3, 2, false, []string{"s s", "s s"}, FloorStatus{FloorOnSpot: 2, Spot: 4, FloorDeficit: 2, OverBudget: 2, Healable: 2}},
		"exempt":                       {2, 1, false, []string{"e e"}, FloorStatus{Spot: 2}},
		"one exempt":                   {3, 1, false, []string{"e s s"}, FloorStatus{FloorOnSpot: 1, Spot: 3, FloorDeficit: 1, OverBudget: 1, Healable: 1}},
		"only exempt on spot":          {4, 4, false, []string{"o - e e"}, FloorStatus{OnDemand: 1, Spot: 2, FloorOnDemand: 1, FloorDeficit: 1}},
		"admits only spot, not exempt": {2, 1, false, []string{"x x"}, FloorStatus{FloorOnSpot: 1, Spot: 2, FloorDeficit: 1, OverBudget: 1}},
		"no floor":                     {3, 0, false, []string{"s o -"}, FloorStatus{OnDemand: 1, Spot: 1, Surplus: 1}},
		"no replicas":                  {3, 1, false, nil, FloorStatus{}},

		"ordinals": {4, 2, true, []string{"o0 o1 s2 s3"}, FloorStatus{OnDemand: 2, Spot: 2, FloorOnDemand: 2}},
		"wrong ordinal on on-demand": {3, 1, true, []string{"s0 o1 s2"},
			FloorStatus{FloorOnSpot: 1, OnDemand: 1, Spot: 2, Surplus: 1, FloorDeficit: 1, OverBudget: 1, Misplaced: []Position{{0, 0}}, Healable: 1}},
		"pending floor ordinal":                    {3, 2, true, []string{"o0 -1 s2"}, FloorStatus{OnDemand: 1, Spot: 1, FloorOnDemand: 1, FloorDeficit: 1}},
		"exempt ordinals":                          {2, 1, true, []string{"e0 e1"}, FloorStatus{Spot: 2}},
		"an ordinal that admits only spot":         {2, 1, true, []string{"x0 s1"}, FloorStatus{FloorOnSpot: 1, Spot: 2, FloorDeficit: 1, OverBudget: 1, Misplaced: []Position{{0, 0}}}},
		"ordinals without a floor":                 {2, 0, true, []string{"s0 o1"}, FloorStatus{OnDemand: 1, Spot: 1, Surplus: 1}},
		"an ordinal beyond the floor on on-demand": {3, 1, true, []string{"o0 o1 s2"}, FloorStatus{OnDemand: 2, Spot: 1, FloorOnDemand: 1, Surplus: 1}},
		"first ordinals missing":                   {3, 2, true, []string{"s2"}, FloorStatus{Spot: 1}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NewFloorStatus(test.desired, test.floor, test.ordered, replicasOf(test.revisions...))); diff != "" {
				t.Errorf("NewFloorStatus (-want +got):\n%s", diff)
			}
		})
	}
}

// Invariants of NewFloorStatus. The order of replicas and revisions affects no number.
func TestFloorStatusProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired := rapid.IntRange(0, 8).Draw(t, "desired")
		floor := rapid.IntRange(0, desired).Draw(t, "floor")
		ordered := rapid.Bool().Draw(t, "ordered")
		revisions := make([][]Replica, rapid.IntRange(0, 3).Draw(t, "revisions"))
		live, onSpot := 0, 0
		for i := range revisions {
			for range rapid.IntRange(0, 6).Draw(t, "replicas") {
				r := Replica{Bound: rapid.Bool().Draw(t, "bound"), Ordinal: rapid.IntRange(-1, 8).Draw(t, "ordinal")}
				if rapid.Bool().Draw(t, "spot") {
					r.Capacity = Spot
					r.OnlySpot = rapid.Bool().Draw(t, "onlySpot")
					r.Exempt = r.OnlySpot && rapid.Bool().Draw(t, "exempt")
					onSpot += map[bool]int{true: 1}[r.Bound && !r.OnlySpot]
				}
				live++
				revisions[i] = append(revisions[i], r)
			}
		}
		s := NewFloorStatus(desired, floor, ordered, revisions)
		switch {
		case s.FloorOnSpot > s.Spot, s.FloorOnSpot > s.FloorDeficit, s.OnDemand+s.Spot > live, s.FloorOnDemand+s.Surplus != s.OnDemand, s.Surplus < 0:
			t.Fatalf("counts do not add up: %+v of %d", s, live)
		case !ordered && s.FloorOnDemand > floor, !ordered && s.FloorOnDemand+s.FloorDeficit > max(floor, s.FloorOnDemand):
			t.Fatalf("more than the floor of %d: %+v", floor, s)
		case s.Healable > onSpot, s.Healable > max(s.OverBudget, s.FloorDeficit):
			t.Fatalf("heals more than possible or necessary: %+v", s)
		case ordered && len(s.Misplaced) != s.OverBudget, !ordered && s.Misplaced != nil:
			t.Fatalf("misplaced: %+v", s)
		case floor == 0 && s.FloorDeficit > 0:
			t.Fatalf("a deficit without a floor: %+v", s)
		}
		for i := range revisions {
			revisions[i] = rapid.Permutation(revisions[i]).Draw(t, "replicas in another order")
		}
		again := NewFloorStatus(desired, floor, ordered, rapid.Permutation(revisions).Draw(t, "revisions in another order"))
		s.Misplaced, again.Misplaced = nil, nil
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatalf("in another order (-before +after):\n%s", diff)
		}
	})
}
