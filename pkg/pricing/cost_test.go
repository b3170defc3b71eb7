package pricing

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// A node with an unknown cost is counted, and is in no sum.
func TestTotals(t *testing.T) {
	var totals Totals
	totals.Add(decision.Spot, &Cost{Now: 1, OnDemand: 4})
	totals.Add(decision.Spot, nil)
	totals.Add(decision.OnDemand, &Cost{Now: 2, OnDemand: 3})
	totals.Add(decision.OnDemand, nil)
	want := Totals{Spot: Total{Nodes: 2, Unpriced: 1, Now: 1, OnDemand: 4}, OnDemand: Total{Nodes: 2, Unpriced: 1, Now: 2, OnDemand: 3}}
	if totals != want {
		t.Errorf("totals %+v, want %+v", totals, want)
	}
}

// The built-in list has both prices of all types, and no others.
func TestBuiltIn(t *testing.T) {
	prices := BuiltIn()
	if len(prices.prices) != 2*len(Types) || len(Types) == 0 {
		t.Errorf("%d prices, want %d", len(prices.prices), 2*len(Types))
	}
	for name := range Types {
		if prices.lookUp(name, "z", decision.Spot) == nil || prices.lookUp(name, "z", decision.OnDemand) == nil {
			t.Errorf("%s has no price for spot or on-demand", name)
		}
	}
	if prices.lookUp("unknown", "z", decision.OnDemand) != nil {
		t.Error("an unknown type has a price")
	}
}
