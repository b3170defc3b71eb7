package report

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Savings is the cost of the nodes in US dollars per hour, and the savings that are possible.
type Savings struct {
	SpotNodes     int `json:"spotNodes"`
	OnDemandNodes int `json:"onDemandNodes"`
	// Now is the cost of the nodes with a price. AllOnDemand is their cost if all were on-demand.
	Now         float64 `json:"usdPerHour"`
	AllOnDemand float64 `json:"usdPerHourAllOnDemand"`
	// Spot and OnDemand are the parts of Now by capacity type.
	Spot     float64 `json:"usdPerHourSpot"`
	OnDemand float64 `json:"usdPerHourOnDemand"`
	// Prices describes the source of the prices.
	Prices string `json:"prices"`
	// CurrentSavings is what spot saves now: the additional cost of the spot nodes if they were
	// on-demand. Discounts on on-demand nodes do not count.
	CurrentSavings float64 `json:"savingsUsdPerHour"`
	// Ignored lists annotations that are not a valid price; such a node has the price of the list.
	Ignored []string `json:"ignored,omitempty"`
	// Unpriced counts the nodes without a price by TYPE/ZONE or node name. They are in no sum.
	Unpriced map[string]int `json:"unpriced,omitempty"`
	// Namespace is the namespace of the workloads in Surplus; "" for all. The caller sets it.
	Namespace string `json:"namespace,omitempty"`
	// Surplus lists the workloads with replicas on on-demand beyond their floors that could be on
	// spot, the largest savings first. PossibleSavings is the sum of their savings.
	Surplus         []Surplus `json:"items"`
	PossibleSavings float64   `json:"possibleSavingsUsdPerHour"`
}

// Surplus is a workload with replicas on on-demand beyond its floor.
type Surplus struct {
	Ref      `json:",inline"`
	Floor    int `json:"floor"`
	OnDemand int `json:"onDemand"`
	// Replicas is the number of replicas that could be on spot. PossibleSavings is what that
	// would save.
	Replicas        int     `json:"surplus"`
	PossibleSavings float64 `json:"savingsUsdPerHour"`
}

// Savings computes the costs of the nodes from a price list. The cost of a replica is its share of
// its node: the larger of the shares of CPU and memory that it requests. Its cost on spot is the
// same share of the node's spot price in the list. Without a spot price in the list, it is the
// current cost times the average ratio of spot to on-demand in this cluster.
func (v *View) Savings(prices *pricing.Prices) *Savings {
	s := &Savings{Prices: prices.From, Unpriced: map[string]int{}, Surplus: []Surplus{}}
	priced, ignored := v.price(prices)
	s.Ignored = ignored
	var totals pricing.Totals
	for _, n := range v.Snapshot.Nodes {
		if priced[n] == nil {
			s.Unpriced[poolName(n)]++
		}
		totals.Add(n.Facts.Capacity.Type, priced[n])
	}
	s.SpotNodes, s.OnDemandNodes = totals.Spot.Nodes, totals.OnDemand.Nodes
	s.Now, s.Spot, s.OnDemand = totals.Now(), totals.Spot.Now, totals.OnDemand.Now
	s.AllOnDemand, s.CurrentSavings = totals.AllOnDemand(), totals.Saved()
	ratio := 1.0 // of spot to on-demand; without any spot node no saving is assumed
	if totals.Spot.OnDemand > 0 {
		ratio = totals.Spot.Now / totals.Spot.OnDemand
	}
	spot := v.spotNodes()
	fits := simulation.FitsAnyNode(spot)
	maySpot := func(p *snapshot.Pod) bool { // by its own node selector and affinity, and by the spot nodes if there are any
		return !workload.OnlyOnDemand(p.Pod, v.Policy) && (len(spot) == 0 || fits(p))
	}
	for _, w := range v.Snapshot.Workloads {
		if surplus, ok := surplusOf(w, priced, ratio, maySpot); ok {
			s.Surplus = append(s.Surplus, surplus)
			s.PossibleSavings += surplus.PossibleSavings
		}
	}
	slices.SortFunc(s.Surplus, func(a, b Surplus) int {
		return cmp.Or(cmp.Compare(b.PossibleSavings, a.PossibleSavings), compareRefs(a.Ref, b.Ref))
	})
	return s
}

// price returns the costs of the nodes whose costs are known, and the annotations that are not a
// valid price.
func (v *View) price(prices *pricing.Prices) (priced map[*snapshot.Node]*pricing.Cost, ignored []string) {
	priced = make(map[*snapshot.Node]*pricing.Cost, len(v.Snapshot.Nodes))
	for _, n := range v.Snapshot.Nodes {
		cost, _, invalid := prices.Cost(n.Node, n.Facts.Capacity.Type)
		ignored = append(ignored, invalid...)
		if cost != nil {
			priced[n] = cost
		}
	}
	return priced, ignored
}

// surplusOf returns the replicas of a workload on on-demand beyond its floor that could be on spot;
// false if there are none. ratio is the average cost of spot relative to on-demand.
func surplusOf(w *snapshot.Workload, priced map[*snapshot.Node]*pricing.Cost, ratio float64,
	maySpot func(*snapshot.Pod) bool) (Surplus, bool) {
	if !w.InProfile {
		return Surplus{}, false
	}
	s := Surplus{Floor: w.Floor}
	var savings []float64
	for p := range podsOf(w) {
		if p.Node == nil || p.Node.Facts.Capacity.Type != decision.OnDemand {
			continue
		}
		s.OnDemand++
		if workload := &p.Subject.Pod.Workload; w.Floor > 0 && workload.Ordered && workload.Ordinal < w.Floor {
			continue // the ordinal belongs to the floor
		}
		if !maySpot(p) {
			continue
		}
		c := ptr.Deref(priced[p.Node], pricing.Cost{})
		savings = append(savings, max(0, share(p)*(c.Now-cmp.Or(c.Spot, c.Now*ratio))))
	}
	s.Replicas = len(savings)
	if w.StatefulSet == nil {
		s.Replicas = max(0, min(s.Replicas, s.OnDemand-w.Floor))
	}
	if s.Replicas == 0 {
		return s, false
	}
	s.Ref = refOf(w)
	slices.SortFunc(savings, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, saving := range savings[:s.Replicas] {
		s.PossibleSavings += saving
	}
	return s, true
}

// share returns the part of its node's cost that a pod pays: the largest of its shares of CPU,
// memory and devices such as GPUs. Unrequested resources belong to no pod. It returns 0 for a pod
// that requests nothing or has no node.
func share(p *snapshot.Pod) (largest float64) {
	if p.Node == nil {
		return 0
	}
	for name, requested := range p.Requests {
		if allocatable := p.Node.Status.Allocatable[name]; name != v1.ResourcePods && name != v1.ResourceEphemeralStorage && !allocatable.IsZero() {
			largest = max(largest, requested.AsApproximateFloat64()/allocatable.AsApproximateFloat64())
		}
	}
	return largest
}
