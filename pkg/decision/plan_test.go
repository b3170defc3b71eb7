package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestNewPlan(t *testing.T) {
	never := decision.Settings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never}
	after := func(d time.Duration) decision.Settings {
		return decision.Settings{MinOnDemand: decision.Count(2), FallbackAfter: d}
	}
	five := decision.Workload{Desired: 5}
	type outline struct {
		Floor, Budget, PoolCap int
		Grant                  decision.Grant
		Prefer                 decision.CapacityType
		MayTakeSpot            bool
	}
	tests := map[string]struct {
		workload decision.Workload
		settings decision.Settings
		onlySpot bool
		placed   decision.Placed
		waiting  decision.Waiting
		want     outline
	}{
		"first pod": {
			workload: five, settings: never,
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"floor not full yet": {
			workload: five, settings: never, placed: decision.Placed{OnDemand: 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"floor full": {
			workload: five, settings: never, placed: decision.Placed{OnDemand: 2},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"budget used up": {
			workload: five, settings: never, placed: decision.Placed{Spot: 3, OnDemand: 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"more than the budget on spot, floor full": {
			workload: five, settings: never, placed: decision.Placed{Spot: 4, OnDemand: 3},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"singleton": {
			workload: decision.Workload{Desired: 1}, settings: never,
			want: outline{Floor: 1, Prefer: decision.OnDemand},
		},
		"nothing desired": {
			settings: never, want: outline{Prefer: decision.OnDemand},
		},
		"no floor": {
			workload: five, settings: decision.Settings{FallbackAfter: decision.Never},
			want: outline{Budget: 5, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"ordinal of the floor": {
			workload: decision.Workload{Desired: 5, Ordered: true, Ordinal: 1}, settings: never, placed: decision.Placed{OnDemand: 4},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"ordinal beyond the floor": {
			workload: decision.Workload{Desired: 5, Ordered: true, Ordinal: 2}, settings: never, placed: decision.Placed{Spot: 4},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"exempt": {
			workload: five, settings: never, onlySpot: true, placed: decision.Placed{Spot: 9},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"cap as a count": {
			workload: five, settings: decision.Settings{MaxPerPool: new(decision.Count(9)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 9, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"cap in percent, rounded up": {
			workload: five, settings: decision.Settings{MaxPerPool: new(decision.Percent(50)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"cap in percent, at least 1": {
			workload: five, settings: decision.Settings{MaxPerPool: new(decision.Percent(0)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 1, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"ScheduleAnyway": {
			workload: five, settings: decision.Settings{MinOnDemand: decision.Count(2), WhenUnsatisfiable: decision.ScheduleAnyway}, placed: decision.Placed{Spot: 3},
			want: outline{Floor: 2, Budget: 3, Grant: decision.Anyway, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"just before the fallback": {
			workload: five, settings: after(time.Minute), placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: time.Minute - 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"fallback": {
			workload: five, settings: after(time.Minute), placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: time.Minute},
			want: outline{Floor: 2, Budget: 3, Grant: decision.FellBack, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"fallback of 0, never found unschedulable": {
			workload: five, settings: after(0), placed: decision.Placed{Spot: 3},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"fallback of 0, found unschedulable": {
			workload: five, settings: after(0), placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: 1},
			want: outline{Floor: 2, Budget: 3, Grant: decision.FellBack, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"never falls back": {
			workload: five, settings: never, placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: 1000 * time.Hour},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"just before the relief": {
			workload: five, settings: never, placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: decision.RolloutRelief - 1, OlderOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"relief": {
			workload: five, settings: never, placed: decision.Placed{Spot: 3}, waiting: decision.Waiting{For: decision.RolloutRelief, OlderOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Grant: decision.Relieved, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := decision.NewPlan(&decision.Pod{OnlySpot: test.onlySpot, Workload: test.workload}, test.settings, test.placed, test.waiting)
			got := outline{plan.Floor, plan.Budget, plan.PoolCap, plan.Grant, plan.Prefer, plan.MayTakeSpot()}
			if diff := cmp.Diff(test.want, got); diff != "" || plan.Exempt != test.onlySpot {
				t.Errorf("plan, exempt %v (-want +got):\n%s", plan.Exempt, diff)
			}
		})
	}
}

// TestOutgrown: one pod more than replicas, or an ordinal beyond the last, shows that what is known of the owner is old.
func TestOutgrown(t *testing.T) {
	three := decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Desired: 3}
	ordinal := func(n int) decision.Workload {
		return decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Desired: 3, Ordered: true, Ordinal: n}
	}
	for name, test := range map[string]struct {
		workload decision.Workload
		onlySpot bool
		placed   decision.Placed
		want     string
	}{
		"the last replica": {workload: three, placed: decision.Placed{Spot: 1, OnDemand: 1}},
		"one more than replicas": {
			workload: three, placed: decision.Placed{Spot: 2, OnDemand: 1},
			want: "owner not up to date yet: all 3 replicas of shop/web-1 are placed; waits for news of its Deployment, 5s at most",
		},
		"nothing depends on the count": {workload: three, onlySpot: true, placed: decision.Placed{Spot: 3}},
		"a Job's pods end before it notices": {
			workload: decision.Workload{Kind: "Job", Desired: 1, Batch: decision.NotRetriable}, placed: decision.Placed{OnDemand: 1},
		},
		"no controller":              {workload: decision.Workload{Kind: "Pod", Desired: 1}},
		"the last ordinal":           {workload: ordinal(2), placed: decision.Placed{OnDemand: 3}},
		"an ordinal below the first": {workload: ordinal(-1)},
		"an ordinal beyond the last": {
			workload: ordinal(3),
			want:     "owner not up to date yet: shop/db has no ordinal 3 with 3 replicas; waits for news of its StatefulSet, 5s at most",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := decision.Pod{OnlySpot: test.onlySpot, Workload: test.workload}
			if diff := cmp.Diff(test.want, pod.Outgrown(test.placed)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCounted: a plan is counted where the number of siblings on spot may decide.
func TestCounted(t *testing.T) {
	tests := map[string]struct {
		candidate
		minOnDemand decision.Quantity
		capped      bool
		want        bool
	}{
		"budget":               {minOnDemand: decision.Count(2), want: true},
		"no budget":            {minOnDemand: decision.Percent(100)},
		"no budget, capped":    {minOnDemand: decision.Percent(100), capped: true, want: true},
		"ordinal":              {candidate: candidate{ordered: true}, minOnDemand: decision.Count(2)},
		"ordinal, capped":      {candidate: candidate{ordered: true}, minOnDemand: decision.Count(2), capped: true, want: true},
		"exempt":               {candidate: candidate{onlySpot: true}, minOnDemand: decision.Count(2)},
		"exempt, capped":       {candidate: candidate{onlySpot: true}, minOnDemand: decision.Count(2), capped: true, want: true},
		"anyway, capped":       {candidate: candidate{anyway: true}, minOnDemand: decision.Count(2), capped: true},
		"no floor, not capped": {minOnDemand: decision.Count(0), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &decision.Pod{OnlySpot: test.onlySpot, Workload: decision.Workload{Desired: 5, Ordered: test.ordered}}
			settings := decision.Settings{MinOnDemand: test.minOnDemand, FallbackAfter: decision.Never}
			if test.capped {
				settings.MaxPerPool = new(decision.Count(1))
			}
			if test.anyway {
				settings.WhenUnsatisfiable = decision.ScheduleAnyway
			}
			plan := decision.NewPlan(pod, settings, decision.Placed{}, decision.Waiting{})
			if got := plan.Counted(); got != test.want {
				t.Errorf("counted: %v, want %v", got, test.want)
			}
		})
	}
}

func TestNextChangeTable(t *testing.T) {
	tests := map[string]struct {
		fallbackAfter, waited time.Duration
		newRevision           bool
		want                  time.Duration
		wantOK                bool
	}{
		"nothing to wait for":               {fallbackAfter: decision.Never},
		"fallback":                          {fallbackAfter: time.Minute, want: time.Minute, wantOK: true},
		"fallback, part of it over":         {fallbackAfter: time.Minute, waited: 20 * time.Second, want: 40 * time.Second, wantOK: true},
		"fallback over":                     {fallbackAfter: time.Minute, waited: time.Minute},
		"fallback of 0":                     {fallbackAfter: 0, want: 0, wantOK: true},
		"relief":                            {fallbackAfter: decision.Never, newRevision: true, want: 30 * time.Second, wantOK: true},
		"relief over":                       {fallbackAfter: decision.Never, newRevision: true, waited: 30 * time.Second},
		"relief before fallback":            {fallbackAfter: time.Minute, newRevision: true, waited: 10 * time.Second, want: 20 * time.Second, wantOK: true},
		"fallback before relief":            {fallbackAfter: 20 * time.Second, newRevision: true, waited: 10 * time.Second, want: 10 * time.Second, wantOK: true},
		"fallback after a relief not given": {fallbackAfter: time.Minute, newRevision: true, waited: 40 * time.Second, want: 20 * time.Second, wantOK: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			settings := decision.Settings{FallbackAfter: test.fallbackAfter}
			if got, ok := settings.NextChange(test.waited, test.newRevision); got != test.want || ok != test.wantOK {
				t.Errorf("got %v, %v; want %v, %v", got, ok, test.want, test.wantOK)
			}
		})
	}
}

func TestFloorDeficit(t *testing.T) {
	tests := map[string]struct {
		minOnDemand             decision.Quantity
		desired, live, onDemand int
		want                    int
	}{
		"floor stands":                   {decision.Count(2), 5, 5, 2, 0},
		"more than the floor":            {decision.Count(2), 5, 5, 4, 0},
		"one lacks":                      {decision.Count(2), 5, 5, 1, 1},
		"all lack":                       {decision.Percent(50), 5, 5, 0, 3},
		"fewer pods live than the floor": {decision.Count(4), 5, 2, 0, 2},
		"none live":                      {decision.Count(4), 5, 0, 0, 0},
		"floor above desired":            {decision.Count(9), 2, 4, 1, 1},
		"none desired":                   {decision.Count(1), 0, 1, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			settings := decision.Settings{MinOnDemand: test.minOnDemand}
			if got := decision.FloorDeficit(settings.Floor(test.desired), test.live, test.onDemand); got != test.want {
				t.Errorf("deficit %d, want %d", got, test.want)
			}
		})
	}
}
