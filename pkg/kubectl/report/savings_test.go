package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

const prices = "instanceType,zone,spot,onDemand\nm,,0.4,1\nm,b,0.2,\nc,,,2\n"

func TestSavings(t *testing.T) {
	view := newView(t, basic(), `
		node od-a on-demand m/a
		node od-b on-demand m/b
		node sp-a spot m/a
		node sp-b spot m/b
		node c on-demand c/a cpu=2
		node unknown spot x/a
		node annotated on-demand y/a annotation=spot-aware-scheduler.io/usd-per-hour=3
		deployment web 4 od-a od-b c sp-a
		deployment fine 2 od-a sp-b
		deployment theirs 2 od-a od-a profile=other
		statefulset db 3 sp-a od-b od-b
		job sum 1 c`)
	list, err := pricing.Read([]byte(prices), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	got := view.Savings(list)
	// On-demand costs 1+1+2+3 and spot 0.4+0.2. With on-demand only, it would be 1+1+2+3+1+1. On
	// average, spot costs 0.3 of on-demand; this applies to c, for which the list has no spot
	// price.
	want := &report.Savings{SpotNodes: 3, OnDemandNodes: 4, Now: 7.6, Spot: 0.6, OnDemand: 7, AllOnDemand: 9, CurrentSavings: 1.4, Prices: "prices.csv", Unpriced: map[string]int{"x/a": 1}}
	const half, quarter = 0.5, 0.25
	ref := func(kind, name string) report.Ref {
		apiVersion := "apps/v1"
		if kind == "Job" {
			apiVersion = "batch/v1"
		}
		return report.Ref{APIVersion: apiVersion, Kind: kind, Namespace: "shop", Name: name}
	}
	want.Surplus = []report.Surplus{
		{Ref: ref("Deployment", "web"), Floor: 1, OnDemand: 3, Replicas: 2, PossibleSavings: half*2*0.7 + quarter*0.8},
		{Ref: ref("Job", "sum"), Floor: 0, OnDemand: 1, Replicas: 1, PossibleSavings: half * 2 * 0.7},
		{Ref: ref("StatefulSet", "db"), Floor: 1, OnDemand: 2, Replicas: 2, PossibleSavings: 2 * quarter * 0.8},
	}
	want.PossibleSavings = want.Surplus[0].PossibleSavings + want.Surplus[1].PossibleSavings + want.Surplus[2].PossibleSavings
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("savings (-want +got):\n%s", diff)
	}
}

// A discount on on-demand nodes, such as reserved capacity, does not count as savings by spot.
func TestSavingsExcludeDiscounts(t *testing.T) {
	view := newView(t, basic(), "node od on-demand m/a annotation=spot-aware-scheduler.io/usd-per-hour=0.1")
	list, err := pricing.Read([]byte(prices), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	if s := view.Savings(list); s.CurrentSavings != 0 || s.Now != 0.1 || s.AllOnDemand != 1 {
		t.Errorf("saved %v of %v and %v, want none", s.CurrentSavings, s.Now, s.AllOnDemand)
	}
}

func TestInvalidPriceAnnotations(t *testing.T) {
	for _, value := range []string{"-1", "cheap", "NaN", "+Inf"} {
		s := newView(t, basic(), "node n spot m/a annotation=spot-aware-scheduler.io/usd-per-hour="+value).Savings(pricing.New(nil, "none"))
		want := fmt.Sprintf("node n: annotation spot-aware-scheduler.io/usd-per-hour: invalid value %q: expected US dollars per hour, 0 or more", value)
		if len(s.Ignored) != 1 || s.Ignored[0] != want || s.Unpriced["m/a"] != 1 {
			t.Errorf("%q, unpriced %v, want %q and no price", s.Ignored, s.Unpriced, want)
		}
	}
}
