package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestNewPlan(t *testing.T) {
	never := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never, RolloutRelief: decision.Never}
	ignore := never
	ignore.Exemptions = decision.IgnoreExemptions
	relief := func(d time.Duration) decision.WorkloadSettings {
		return decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never, RolloutRelief: d}
	}
	after := func(d time.Duration) decision.WorkloadSettings {
		return decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: d}
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
		settings decision.WorkloadSettings
		onlySpot bool
		placed   decision.PlacedPods
		waiting  decision.WaitTime
		want     outline
		exempt   bool
	}{
		"first pod": {
			workload: five, settings: never,
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"floor not met": {
			workload: five, settings: never, placed: decision.PlacedPods{OnDemand: 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"floor met": {
			workload: five, settings: never, placed: decision.PlacedPods{OnDemand: 2},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"budget used up": {
			workload: five, settings: never, placed: decision.PlacedPods{Spot: 3, OnDemand: 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"more than the budget on spot, floor met": {
			workload: five, settings: never, placed: decision.PlacedPods{Spot: 4, OnDemand: 3},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"singleton": {
			workload: decision.Workload{Desired: 1}, settings: never,
			want: outline{Floor: 1, Prefer: decision.OnDemand},
		},
		"no desired replicas": {
			settings: never, want: outline{Prefer: decision.OnDemand},
		},
		"no floor": {
			workload: five, settings: decision.WorkloadSettings{FallbackAfter: decision.Never},
			want: outline{Budget: 5, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"ordinal of the floor": {
			workload: decision.Workload{Desired: 5, Ordered: true, Ordinal: 1}, settings: never, placed: decision.PlacedPods{OnDemand: 4},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"ordinal beyond the floor": {
			workload: decision.Workload{Desired: 5, Ordered: true, Ordinal: 2}, settings: never, placed: decision.PlacedPods{Spot: 4},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"exempt": {
			workload: five, settings: never, onlySpot: true, placed: decision.PlacedPods{Spot: 9}, exempt: true,
			want: outline{Floor: 2, Budget: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"exemptions ignored": {
			workload: five, settings: ignore, onlySpot: true, placed: decision.PlacedPods{Spot: 3},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"exemptions ignored, within the budget": {
			workload: five, settings: ignore, onlySpot: true, placed: decision.PlacedPods{Spot: 2},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"cap as a count": {
			workload: five, settings: decision.WorkloadSettings{MaxPerPool: new(decision.Count(9)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 9, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"cap in percent, rounded up": {
			workload: five, settings: decision.WorkloadSettings{MaxPerPool: new(decision.Percent(50)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 3, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"cap in percent, at least 1": {
			workload: five, settings: decision.WorkloadSettings{MaxPerPool: new(decision.Percent(0)), FallbackAfter: decision.Never},
			want: outline{Budget: 5, PoolCap: 1, Prefer: decision.Spot, MayTakeSpot: true},
		},
		"ScheduleAnyway": {
			workload: five, settings: decision.WorkloadSettings{MinOnDemand: decision.Count(2), WhenUnsatisfiable: decision.ScheduleAnyway}, placed: decision.PlacedPods{Spot: 3},
			want: outline{Floor: 2, Budget: 3, Grant: decision.GrantScheduleAnyway, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"just before the fallback": {
			workload: five, settings: after(time.Minute), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: time.Minute - 1},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"fallback": {
			workload: five, settings: after(time.Minute), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: time.Minute},
			want: outline{Floor: 2, Budget: 3, Grant: decision.GrantFallback, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"fallback of 0, never found unschedulable": {
			workload: five, settings: after(0), placed: decision.PlacedPods{Spot: 3},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"fallback of 0, found unschedulable": {
			workload: five, settings: after(0), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: 1},
			want: outline{Floor: 2, Budget: 3, Grant: decision.GrantFallback, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"never falls back": {
			workload: five, settings: never, placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: 1000 * time.Hour},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"just before the relief": {
			workload: five, settings: relief(time.Minute), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: time.Minute - 1, OlderRevisionOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"relief": {
			workload: five, settings: relief(time.Minute), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: time.Minute, OlderRevisionOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Grant: decision.GrantRolloutRelief, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"relief of 0, never found unschedulable": {
			workload: five, settings: relief(0), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{OlderRevisionOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
		"relief of 0, found unschedulable": {
			workload: five, settings: relief(0), placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: 1, OlderRevisionOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Grant: decision.GrantRolloutRelief, Prefer: decision.OnDemand, MayTakeSpot: true},
		},
		"never relieved": {
			workload: five, settings: never, placed: decision.PlacedPods{Spot: 3}, waiting: decision.WaitTime{For: 1000 * time.Hour, OlderRevisionOnDemand: true},
			want: outline{Floor: 2, Budget: 3, Prefer: decision.OnDemand},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := decision.NewPlan(&decision.Pod{OnlySpot: test.onlySpot, Workload: test.workload}, test.settings, test.placed, test.waiting)
			got := outline{plan.Floor, plan.Budget, plan.PoolCap, plan.Grant, plan.Prefer, plan.AdmitsSpot()}
			if diff := cmp.Diff(test.want, got); diff != "" || plan.Exempt != test.exempt || plan.AdmitsOnDemand() == test.onlySpot {
				t.Errorf("plan, exempt %v, on-demand %v (-want +got):\n%s", plan.Exempt, plan.AdmitsOnDemand(), diff)
			}
		})
	}
}

// TestOverflowNever: which replicas overflow Never keeps off on-demand, and which reason Waits
// gives.
func TestOverflowNever(t *testing.T) {
	five := decision.Workload{Kind: "Deployment", Revision: "shop/web-5d9f", Desired: 5}
	ordinal := func(n int) decision.Workload {
		return decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Desired: 5, Ordered: true, Ordinal: n, BlocksLater: true}
	}
	two, none := decision.Count(2), decision.Count(0)
	type outline struct {
		Beyond, KeptOff, Spot, OnDemand, Counted bool
		Prefer                                   decision.CapacityType
		Waits                                    string
	}
	const floorMet = "overflow Never: the floor of 2 of shop/web-5d9f is met (waits for room on spot)"
	tests := map[string]struct {
		pod         decision.Pod
		minOnDemand decision.Quantity
		placed      decision.PlacedPods
		anyway      bool
		allow       bool // overflow Allow
		want        outline
	}{
		"floor not met": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 1},
			want: outline{Spot: true, OnDemand: true, Counted: true, Waits: "no feasible node: the pod may run on on-demand and on spot"},
		},
		"floor not met, budget used up": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 1, Spot: 3},
			want: outline{OnDemand: true, Counted: true, Waits: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for on-demand room)"},
		},
		"floor met": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 2},
			want: outline{Beyond: true, KeptOff: true, Spot: true, Counted: true, Prefer: decision.Spot, Waits: floorMet},
		},
		"more than the floor on on-demand": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 4},
			want: outline{Beyond: true, KeptOff: true, Spot: true, Counted: true, Prefer: decision.Spot, Waits: floorMet},
		},
		"floor met, overflow allowed": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 2}, allow: true,
			want: outline{
				Beyond: true, Spot: true, OnDemand: true, Counted: true, Prefer: decision.Spot, Waits: "no feasible node: the pod may run on on-demand and on spot",
			},
		},
		"floor met, ScheduleAnyway": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 2, Spot: 3}, anyway: true,
			want: outline{Beyond: true, KeptOff: true, Spot: true, Counted: true, Prefer: decision.Spot, Waits: floorMet},
		},
		"one replica too many": {
			pod: decision.Pod{Workload: five}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 2, Spot: 3},
			want: outline{
				Beyond: true, KeptOff: true, Counted: true, Prefer: decision.Spot,
				Waits: "spot budget used up: 3 of at most 3 replicas of shop/web-5d9f run on spot (waits for another replica to terminate)",
			},
		},
		"no floor": {
			pod: decision.Pod{Workload: five}, minOnDemand: none,
			want: outline{
				Beyond: true, KeptOff: true, Spot: true, Counted: true, Prefer: decision.Spot,
				Waits: "overflow Never: shop/web-5d9f has no floor (waits for room on spot)",
			},
		},
		"admits only on-demand": {
			pod: decision.Pod{Workload: five, OnlyOnDemand: true}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 2},
			want: outline{
				Beyond: true, Spot: true, OnDemand: true, Counted: true, Prefer: decision.OnDemand,
				Waits: "no feasible node: the pod's own constraints admit only on-demand",
			},
		},
		"admits only spot": {
			pod: decision.Pod{Workload: five, OnlySpot: true}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 1},
			want: outline{Spot: true, Prefer: decision.Spot, Waits: "no feasible node: the pod's own constraints admit only spot"},
		},
		"ordinal of the floor": {
			pod: decision.Pod{Workload: ordinal(1)}, minOnDemand: two, placed: decision.PlacedPods{OnDemand: 4},
			want: outline{OnDemand: true, Waits: "ordinal belongs to the floor: the first 2 ordinals of shop/db must run on on-demand, " +
				"and later ordinals wait for this one (waits for on-demand room)"},
		},
		"ordinal beyond the floor": {
			pod: decision.Pod{Workload: ordinal(2)}, minOnDemand: two,
			want: outline{
				Beyond: true, KeptOff: true, Spot: true, Prefer: decision.Spot,
				Waits: "overflow Never: only the first 2 ordinals of shop/db may run on on-demand, and later ordinals wait for this one " +
					"(waits for room on spot)",
			},
		},
		"ordinal below the first, no floor": {
			pod: decision.Pod{Workload: ordinal(-1)}, minOnDemand: none,
			want: outline{
				Beyond: true, KeptOff: true, Spot: true, Prefer: decision.Spot,
				Waits: "overflow Never: shop/db has no floor, and later ordinals wait for this one (waits for room on spot)",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			settings := decision.WorkloadSettings{
				MinOnDemand: test.minOnDemand, FallbackAfter: decision.Never, RolloutRelief: decision.Never, Overflow: decision.NeverOverflow,
			}
			if test.allow {
				settings.Overflow = decision.AllowOverflow
			}
			if test.anyway {
				settings.WhenUnsatisfiable = decision.ScheduleAnyway
			}
			plan := decision.NewPlan(&test.pod, settings, test.placed, decision.WaitTime{})
			got := outline{
				plan.BeyondFloor(), plan.ExcludedFromOnDemand(), plan.AdmitsSpot(), plan.AdmitsOnDemand(), plan.DependsOnSiblings(), plan.Prefer, plan.WaitReason(),
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			verdict := plan.Admit(decision.Node{}, 0, 0)
			if want := test.want.KeptOff; want != (verdict == decision.OverflowRefused) || want == (verdict == decision.Admitted) {
				t.Errorf("an on-demand node: verdict %d", verdict)
			}
		})
	}
}

// TestOutdatedOwner: one pod more than replicas, or an ordinal beyond the last, shows that the
// known state of the owner is outdated.
func TestOutdatedOwner(t *testing.T) {
	three := decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Desired: 3}
	ordinal := func(n int) decision.Workload {
		return decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Desired: 3, Ordered: true, Ordinal: n}
	}
	for name, test := range map[string]struct {
		workload decision.Workload
		onlySpot bool
		settings decision.WorkloadSettings
		placed   decision.PlacedPods
		want     string
	}{
		"the last replica": {workload: three, placed: decision.PlacedPods{Spot: 1, OnDemand: 1}},
		"one more than replicas": {
			workload: three, placed: decision.PlacedPods{Spot: 2, OnDemand: 1},
			want: "owner not up to date yet: all 3 replicas of shop/web-1 are placed (waits for an update of its Deployment, at most 5s)",
		},
		"nothing depends on the count": {workload: three, onlySpot: true, placed: decision.PlacedPods{Spot: 3}},
		"exemptions ignored": {
			workload: three, onlySpot: true, settings: decision.WorkloadSettings{Exemptions: decision.IgnoreExemptions}, placed: decision.PlacedPods{Spot: 3},
			want: "owner not up to date yet: all 3 replicas of shop/web-1 are placed (waits for an update of its Deployment, at most 5s)",
		},
		"pods of a Job": {
			workload: decision.Workload{Kind: "Job", Desired: 1, Batch: decision.NotRetriable}, placed: decision.PlacedPods{OnDemand: 1},
		},
		"no controller":              {workload: decision.Workload{Kind: "Pod", Desired: 1}},
		"the last ordinal":           {workload: ordinal(2), placed: decision.PlacedPods{OnDemand: 3}},
		"an ordinal below the first": {workload: ordinal(-1)},
		"an ordinal beyond the last": {
			workload: ordinal(3),
			want:     "owner not up to date yet: shop/db has no ordinal 3 with 3 replicas (waits for an update of its StatefulSet, at most 5s)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := decision.Pod{OnlySpot: test.onlySpot, Workload: test.workload}
			if diff := cmp.Diff(test.want, pod.OutdatedOwner(test.settings, test.placed)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCounted: Counted is true if the number of siblings on spot may change the plan.
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
			settings := decision.WorkloadSettings{MinOnDemand: test.minOnDemand, FallbackAfter: decision.Never}
			if test.capped {
				settings.MaxPerPool = new(decision.Count(1))
			}
			if test.anyway {
				settings.WhenUnsatisfiable = decision.ScheduleAnyway
			}
			plan := decision.NewPlan(pod, settings, decision.PlacedPods{}, decision.WaitTime{})
			if got := plan.DependsOnSiblings(); got != test.want {
				t.Errorf("counted: %v, want %v", got, test.want)
			}
		})
	}
}

func TestNextChangeTable(t *testing.T) {
	tests := map[string]struct {
		fallbackAfter, waited time.Duration
		relief                time.Duration // 0: 30 s
		newRevision           bool
		want                  time.Duration
		wantOK                bool
	}{
		"no relief": {fallbackAfter: decision.Never, relief: decision.Never, newRevision: true},
		"no relief, fallback": {
			fallbackAfter: time.Minute, relief: decision.Never, newRevision: true, waited: 10 * time.Second, want: 50 * time.Second, wantOK: true,
		},
		"relief of a minute":               {fallbackAfter: decision.Never, relief: time.Minute, newRevision: true, waited: 30 * time.Second, want: 30 * time.Second, wantOK: true},
		"no fallback, no new revision":     {fallbackAfter: decision.Never},
		"fallback":                         {fallbackAfter: time.Minute, want: time.Minute, wantOK: true},
		"fallback, partly elapsed":         {fallbackAfter: time.Minute, waited: 20 * time.Second, want: 40 * time.Second, wantOK: true},
		"fallback elapsed":                 {fallbackAfter: time.Minute, waited: time.Minute},
		"fallback of 0":                    {fallbackAfter: 0, want: 0, wantOK: true},
		"relief":                           {fallbackAfter: decision.Never, newRevision: true, want: 30 * time.Second, wantOK: true},
		"relief elapsed":                   {fallbackAfter: decision.Never, newRevision: true, waited: 30 * time.Second},
		"relief before fallback":           {fallbackAfter: time.Minute, newRevision: true, waited: 10 * time.Second, want: 20 * time.Second, wantOK: true},
		"fallback before relief":           {fallbackAfter: 20 * time.Second, newRevision: true, waited: 10 * time.Second, want: 10 * time.Second, wantOK: true},
		"fallback after an elapsed relief": {fallbackAfter: time.Minute, newRevision: true, waited: 40 * time.Second, want: 20 * time.Second, wantOK: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			settings := decision.WorkloadSettings{FallbackAfter: test.fallbackAfter, RolloutRelief: 30 * time.Second}
			if test.relief != 0 {
				settings.RolloutRelief = test.relief
			}
			if got, ok := settings.NextChange(test.waited, test.newRevision); got != test.want || ok != test.wantOK {
				t.Errorf("got %v, %v; want %v, %v", got, ok, test.want, test.wantOK)
			}
		})
	}
}

// A relief of 0 is due when the pod is first found unschedulable, and never again.
func TestNextChangeWithZeroRelief(t *testing.T) {
	settings := decision.WorkloadSettings{FallbackAfter: decision.Never, RolloutRelief: 0}
	if in, ok := settings.NextChange(0, true); in != 0 || !ok {
		t.Errorf("before any waiting: %v, %v; want 0s, true", in, ok)
	}
	if in, ok := settings.NextChange(1, true); ok {
		t.Errorf("after some waiting: %v, want none", in)
	}
}

// A new replica count justifies another attempt only if it may make a node feasible for the pod.
func TestMayOpen(t *testing.T) {
	never := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}
	half := decision.WorkloadSettings{MinOnDemand: decision.Percent(50), FallbackAfter: decision.Never}
	full := decision.PlacedPods{Spot: 4, OnDemand: 1}
	for name, test := range map[string]struct {
		settings      decision.WorkloadSettings
		before, after decision.Workload
		placed        decision.PlacedPods
		waiting       decision.WaitTime
		onlySpot      bool
		want          bool
	}{
		"budget grows":                      {settings: never, before: decision.Workload{Desired: 5}, after: decision.Workload{Desired: 6}, placed: full, want: true},
		"only the floor grows":              {settings: half, before: decision.Workload{Desired: 8}, after: decision.Workload{Desired: 9}, placed: full},
		"budget shrinks":                    {settings: never, before: decision.Workload{Desired: 5}, after: decision.Workload{Desired: 4}, placed: full},
		"budget grows, but was not used up": {settings: never, before: decision.Workload{Desired: 9}, after: decision.Workload{Desired: 10}, placed: full},
		"budget grows, and the pod had fallen back": {settings: decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, before: decision.Workload{Desired: 5},
			after: decision.Workload{Desired: 6}, placed: full, waiting: decision.WaitTime{For: 1}},
		"budget grows, and the pod admits only spot": {settings: never, before: decision.Workload{Desired: 5}, after: decision.Workload{Desired: 6},
			placed: full, onlySpot: true},
		"cap grows": {settings: decision.WorkloadSettings{MaxPerPool: new(decision.Percent(50)), FallbackAfter: decision.Never},
			before: decision.Workload{Desired: 8}, after: decision.Workload{Desired: 9}, want: true},
		"cap stays": {settings: decision.WorkloadSettings{MaxPerPool: new(decision.Percent(50)), FallbackAfter: decision.Never},
			before: decision.Workload{Desired: 7}, after: decision.Workload{Desired: 8}},
		"ordinal moves beyond the floor": {settings: half, before: decision.Workload{Desired: 8, Ordered: true, Ordinal: 3},
			after: decision.Workload{Desired: 6, Ordered: true, Ordinal: 3}, want: true},
		"ordinal stays in the floor": {settings: half, before: decision.Workload{Desired: 8, Ordered: true, Ordinal: 2},
			after: decision.Workload{Desired: 6, Ordered: true, Ordinal: 2}},
		"ordinal moves into the floor and may preempt on on-demand": {settings: half, before: decision.Workload{Desired: 6, Ordered: true, Ordinal: 3},
			after: decision.Workload{Desired: 8, Ordered: true, Ordinal: 3}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := decision.NewPlan(&decision.Pod{OnlySpot: test.onlySpot, Workload: test.before}, test.settings, test.placed, test.waiting)
			after := decision.NewPlan(&decision.Pod{OnlySpot: test.onlySpot, Workload: test.after}, test.settings, test.placed, decision.WaitTime{})
			if got := before.MayAdmitMore(&after); got != test.want {
				t.Errorf("MayOpen = %t, want %t", got, test.want)
			}
		})
	}
}
