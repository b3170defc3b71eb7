package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"

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
	want := &report.Savings{PricedNodes: 6, Now: 7.6, Spot: 0.6, OnDemand: 7, AllOnDemand: 9, CurrentSavings: 1.4}
	want.NodePrices = report.NodePrices{SpotNodes: 3, OnDemandNodes: 4, Prices: "prices.csv", Unpriced: map[string]int{"x/a": 1}}
	// Each pod requests a quarter of its node, of c half. Pods request 2 of 4 CPUs on sp-a, and
	// 1 on sp-b.
	want.UsedSavings, want.IdleSpot, want.SpotUse = 0.5*0.6+0.25*0.8, 0.5*0.4+0.75*0.2, new(1-0.35/0.6)
	const month = report.HoursPerMonth
	const half, quarter = 0.5 * month, 0.25 * month
	cost := func(kind, name string, floor, onDemand, spot int, cost, saved float64, surplus int, possible float64) report.WorkloadCost {
		apiVersion := "apps/v1"
		if kind == "Job" {
			apiVersion = "batch/v1"
		}
		c := report.WorkloadCost{Ref: report.Ref{APIVersion: apiVersion, Kind: kind, Namespace: "shop", Name: name}, Floor: floor, OnDemand: onDemand, Spot: spot,
			Cost: &cost, Saved: &saved, Surplus: surplus, NoFloor: name == "theirs"}
		if !c.NoFloor {
			c.PossibleSavings = &possible
		}
		return c
	}
	want.Workloads = []report.WorkloadCost{
		cost("Deployment", "web", 1, 3, 1, quarter*2.4+half*2, quarter*0.6, 2, half*2*0.7+quarter*0.8),
		cost("Job", "sum", 0, 1, 0, half*2, 0, 1, half*2*0.7),
		cost("StatefulSet", "db", 1, 2, 1, quarter*2.4, quarter*0.6, 2, 2*quarter*0.8),
		cost("Deployment", "theirs", 0, 2, 0, quarter*2, 0, 0, 0),
		cost("Deployment", "fine", 1, 1, 1, quarter*1.2, quarter*0.8, 0, 0),
	}
	want.Namespaces = []report.NamespaceCost{{Namespace: "shop", Cost: quarter*2.4 + half*2 + half*2 + quarter*2.4 + quarter*2 + quarter*1.2, Saved: quarter * 2}}
	want.PossibleSavings = (*want.Workloads[0].PossibleSavings + *want.Workloads[1].PossibleSavings + *want.Workloads[2].PossibleSavings) / month
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
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

// The cost of a replica on a node without a price, or without requests, is unknown.
func TestSavingsUnknown(t *testing.T) {
	s := newView(t, basic(), "node sp spot m/a\nnode other spot x/a\ndeployment web 2 sp other\ndeployment known 2 sp sp\ndeployment lost 1 -").Savings(pricing.New([]pricing.Price{
		{InstanceType: "m", Spot: new(0.4), OnDemand: new(1.0)}}, "list"))
	if len(s.Workloads) != 2 || s.Workloads[0].Name != "known" || s.Workloads[1].Cost != nil || s.Workloads[1].Saved != nil || s.Namespaces[0].UnknownCosts != 1 {
		t.Errorf("%+v", s)
	}
	if s := newView(t, basic(), "node sp spot x/a").Savings(pricing.New(nil, "none")); s.SpotUse != nil || s.PricedNodes != 0 {
		t.Errorf("%+v", s)
	}
}

// The namespaces are in the order of their names, each with all its workloads.
func TestSavingsOfNamespaces(t *testing.T) {
	list, err := pricing.Read([]byte(prices), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	listed := edited(t, "node od on-demand m/a\npod a od\npod b od\npod c od\npod d od", func(pod *v1.Pod) {
		if pod.Name != "b" {
			pod.Namespace = "bank"
		}
	})
	const pod = 0.25 * report.HoursPerMonth
	want := []report.NamespaceCost{{Namespace: "bank", Cost: 3 * pod}, {Namespace: "shop", Cost: pod}}
	if diff := cmp.Diff(want, viewOf(t, listed, basic()).Savings(list).Namespaces); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}
