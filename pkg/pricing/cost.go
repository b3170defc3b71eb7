package pricing

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Cost is the cost of a node in US dollars per hour.
type Cost struct {
	// Now is the current cost. OnDemand is the cost of the node if it were on-demand.
	Now, OnDemand float64
	// Spot is the cost of the node if it were spot; 0 if the list has no spot price.
	Spot float64
}

// Cost returns the cost of a node of a capacity type; nil if it is unknown. onDemand is the cost of
// the node if it were on-demand, which may be known although the current cost is not; nil if it is
// unknown. The annotations of the node take precedence over the list. ignored describes annotations
// that are not a valid price.
func (p *Prices) Cost(node *v1.Node, capacity decision.CapacityType) (cost *Cost, onDemand *float64, ignored []string) {
	instanceType, zone := node.Labels[v1.LabelInstanceTypeStable], node.Labels[v1.LabelTopologyZone]
	annotated := func(key string) *float64 {
		text, given := node.Annotations[key]
		if !given {
			return nil
		}
		price, err := strconv.ParseFloat(text, 64)
		if err != nil || !(price >= 0) || math.IsInf(price, 0) {
			const invalid = "node %s: annotation %s: invalid value %q: expected US dollars per hour, 0 or more"
			ignored = append(ignored, fmt.Sprintf(invalid, node.Name, key, text))
			return nil
		}
		return &price
	}
	now := cmp.Or(annotated(spot.PriceAnnotation), p.lookUp(instanceType, zone, capacity))
	onDemand = cmp.Or(annotated(spot.OnDemandPriceAnnotation), p.lookUp(instanceType, zone, decision.OnDemand))
	if capacity == decision.OnDemand { // each price may replace the other
		now, onDemand = cmp.Or(now, onDemand), cmp.Or(onDemand, now)
	}
	if now == nil || onDemand == nil {
		return nil, onDemand, ignored
	}
	return &Cost{Now: *now, OnDemand: *onDemand, Spot: ptr.Deref(p.lookUp(instanceType, zone, decision.Spot), 0)}, onDemand, ignored
}

// Total is the cost of nodes of one capacity type in US dollars per hour.
type Total struct {
	// Nodes counts all nodes. Unpriced counts the nodes with an unknown cost, which are in no sum.
	Nodes, Unpriced int
	// Now is the current cost. OnDemand is the cost if the nodes were on-demand.
	Now, OnDemand float64
}

// Totals are the totals of both capacity types. The same nodes, added in the same order, result in
// the same sums to the last digit.
type Totals struct{ Spot, OnDemand Total }

// Add adds a node; a nil cost is unknown.
func (t *Totals) Add(capacity decision.CapacityType, cost *Cost) {
	of := &t.OnDemand
	if capacity == decision.Spot {
		of = &t.Spot
	}
	of.Nodes++
	if cost == nil {
		of.Unpriced++
		return
	}
	of.Now += cost.Now
	of.OnDemand += cost.OnDemand
}
