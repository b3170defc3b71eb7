package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

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
func TestMayAdmitMore(t *testing.T) {
	const full = " minOnDemand=1 spot=4 onDemand=1"
	for name, test := range map[string]struct {
		before, after string // as arguments of the directive "plan"
		want          bool
	}{
		"budget grows":                               {full, "desired=6" + full, true},
		"only the floor grows":                       {"desired=8 minOnDemand=50% spot=4 onDemand=1", "desired=9 minOnDemand=50% spot=4 onDemand=1", false},
		"budget shrinks":                             {full, "desired=4" + full, false},
		"budget grows, but was not used up":          {"desired=9" + full, "desired=10" + full, false},
		"budget grows, and the pod had fallen back":  {"fallbackAfter=0s waited=1ns" + full, "desired=6 fallbackAfter=0s" + full, false},
		"budget grows, and the pod admits only spot": {"requires=spot" + full, "requires=spot desired=6" + full, false},
		"cap grows":                                  {"desired=8 minOnDemand=0 maxPerPool=50%", "desired=9 minOnDemand=0 maxPerPool=50%", true},
		"cap stays":                                  {"desired=7 minOnDemand=0 maxPerPool=50%", "desired=8 minOnDemand=0 maxPerPool=50%", false},
		"ordinal moves beyond the floor":             {"ordered ordinal=3 desired=8 minOnDemand=50%", "ordered ordinal=3 desired=6 minOnDemand=50%", true},
		"ordinal stays in the floor":                 {"ordered ordinal=2 desired=8 minOnDemand=50%", "ordered ordinal=2 desired=6 minOnDemand=50%", false},
		"ordinal moves into the floor and may preempt on on-demand": {"ordered ordinal=3 desired=6 minOnDemand=50%", "ordered ordinal=3 desired=8 minOnDemand=50%", true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := planOfArgs(t, test.before), planOfArgs(t, test.after)
			if got := before.MayAdmitMore(&after); got != test.want {
				t.Errorf("MayAdmitMore = %t, want %t", got, test.want)
			}
		})
	}
}

// AdmitReserved changes only the verdict Admitted. With other verdicts the pod is refused anyway.
func TestAdmitReserved(t *testing.T) {
	for v := range decision.Verdict(decision.Verdicts) {
		want := v
		if v == decision.Admitted {
			want = decision.NodeReserved
		}
		if got := decision.AdmitReserved(v); got != want {
			t.Errorf("AdmitReserved(%d) = %d, want %d", v, got, want)
		}
	}
}

func TestBudgetUsage(t *testing.T) {
	counted, ordered := planOfArgs(t, "spot=1"), planOfArgs(t, "ordered")
	want := []string{"spot budget of shop/web: 1 of 3 used before this pod", "the first 2 ordinals of shop/web must run on on-demand"}
	if diff := cmp.Diff(want, []string{counted.BudgetUsage(), ordered.BudgetUsage()}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
