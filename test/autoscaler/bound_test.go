package autoscaler

import (
	"math"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// demand is the total CPU request of pods, in milli-CPUs.
type demand struct {
	// floor is the part that must be on on-demand. all includes it.
	floor, all int64
}

// lowestPrice returns a lower bound of the price of nodes of the given types with room for the
// demand, in US dollars per hour. It is the price of the cheapest whole numbers of nodes of each
// type with enough CPU: on-demand nodes for the floor and any nodes for the rest. It ignores that a
// pod cannot be split over two nodes. Requests are multiples of unit.
func lowestPrice(types []lab.KarpenterType, d demand, unit int64) float64 {
	units := func(milli int64) int { return int((milli + unit - 1) / unit) }
	largest := 0
	for _, t := range types {
		largest = max(largest, int(t.CPUMilli/unit))
	}
	// More on-demand capacity than the whole demand plus one node never lowers the price.
	size := units(d.all) + largest
	onDemand, spot := lowestPrices(types, lab.OnDemand, size, unit), lowestPrices(types, lab.Spot, size, unit)
	best := math.Inf(1)
	for c := units(d.floor); c <= size; c++ {
		// The unused CPUs of the on-demand nodes run pods that could run on spot.
		best = min(best, onDemand[c]+spot[max(0, units(d.all)-c)])
	}
	return best
}

// lowestPrices returns, for each number of units from 0 to size, the lowest price of nodes of one
// capacity type with at least that many units together.
func lowestPrices(types []lab.KarpenterType, capacity string, size int, unit int64) []float64 {
	prices := make([]float64, size+1)
	for c := 1; c <= size; c++ {
		prices[c] = math.Inf(1)
		for _, t := range types {
			prices[c] = min(prices[c], t.Price[capacity]+prices[max(0, c-int(t.CPUMilli/unit))])
		}
	}
	return prices
}

func TestLowestPrice(t *testing.T) {
	small := lab.KarpenterType{CPUMilli: 900, Price: map[string]float64{lab.Spot: 7, lab.OnDemand: 10}}
	large := lab.KarpenterType{CPUMilli: 1900, Price: map[string]float64{lab.Spot: 12, lab.OnDemand: 18}}
	both := []lab.KarpenterType{small, large}
	tests := map[string]struct {
		demand
		want float64
	}{
		"nothing":                       {demand{0, 0}, 0},
		"one small spot node":           {demand{0, 900}, 7},
		"one large spot node":           {demand{0, 1000}, 12},
		"a floor alone":                 {demand{100, 100}, 10},
		"the rest fits beside a floor":  {demand{100, 900}, 10},
		"the rest needs a spot node":    {demand{100, 1000}, 17},
		"a larger on-demand node pays":  {demand{1000, 1900}, 18},
		"a large and a small spot node": {demand{0, 2800}, 19},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lowestPrice(both, test.demand, 100); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
