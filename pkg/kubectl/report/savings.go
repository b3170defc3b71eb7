package report

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// NodePrices are the nodes and the source of their prices.
type NodePrices struct {
	SpotNodes     int `json:"spotNodes"`
	OnDemandNodes int `json:"onDemandNodes"`
	// Prices describes the source of the prices.
	Prices string `json:"prices"`
	// Unpriced counts the nodes without a price by TYPE/ZONE or node name. They are in no sum.
	Unpriced map[string]int `json:"unpriced,omitempty"`
	// Ignored lists annotations that are not a valid price; such a node has the price of the list.
	Ignored []string `json:"ignored,omitempty"`
}

// Savings is the cost of the nodes in US dollars per hour and of the workloads per month, what spot
// saves, and what it could still save.
type Savings struct {
	NodePrices `json:",inline"`
	// PricedNodes counts the nodes with a price.
	PricedNodes int `json:"pricedNodes"`
	// Now is the cost of the nodes with a price. AllOnDemand is their cost if all were on-demand.
	Now         float64 `json:"usdPerHour"`
	AllOnDemand float64 `json:"usdPerHourAllOnDemand"`
	// Spot and OnDemand are the parts of Now by capacity type.
	Spot     float64 `json:"usdPerHourSpot"`
	OnDemand float64 `json:"usdPerHourOnDemand"`
	// CurrentSavings is the additional cost of the spot nodes if they were on-demand, whether pods
	// use them or not. Discounts on on-demand nodes do not count.
	CurrentSavings float64 `json:"savingsUsdPerHour"`
	// UsedSavings is the part of CurrentSavings that pods request. IdleSpot is the cost of the room
	// on spot nodes that no pod requests. SpotUse is the requested part of their cost, from 0 to 1;
	// nil without a spot node that has a price.
	UsedSavings float64  `json:"usedSavingsUsdPerHour"`
	IdleSpot    float64  `json:"idleSpotUsdPerHour"`
	SpotUse     *float64 `json:"spotUse,omitempty"`
	// Namespace is the namespace of the workloads; "" for all.
	Namespace string `json:"namespace,omitempty"`
	// Namespaces has the sums of the workloads of each namespace.
	Namespaces []NamespaceCost `json:"namespaces"`
	// Workloads lists the workloads with replicas on nodes: the largest possible savings first,
	// then the highest costs. PossibleSavings is the sum of their possible savings per hour.
	Workloads       []WorkloadCost `json:"items"`
	PossibleSavings float64        `json:"possibleSavingsUsdPerHour"`
}

// NamespaceCost is the cost of the workloads of a namespace in US dollars per month.
type NamespaceCost struct {
	Namespace string `json:"namespace"`
	// Cost and Saved are the sums of the known figures of its workloads. UnknownCosts counts the
	// workloads without them.
	Cost         float64 `json:"usdPerMonth"`
	Saved        float64 `json:"savedUsdPerMonth"`
	UnknownCosts int     `json:"unknownCosts,omitempty"`
}

// WorkloadCost is the cost of the replicas of a workload in US dollars per month.
type WorkloadCost struct {
	Ref      `json:",inline"`
	Floor    int `json:"floor"`
	OnDemand int `json:"onDemand"`
	Spot     int `json:"spot"`
	// Cost is the cost of its replicas, and Saved is what those on spot would cost more on
	// on-demand. Both are nil if the cost of a replica is unknown.
	Cost  *float64 `json:"usdPerMonth,omitempty"`
	Saved *float64 `json:"savedUsdPerMonth,omitempty"`
	// Surplus counts its replicas on on-demand beyond the floor that could be on spot.
	// PossibleSavings is what that would save; nil if it is unknown.
	Surplus         int      `json:"surplus"`
	PossibleSavings *float64 `json:"savingsUsdPerMonth,omitempty"`

	// NoFloor is as in AffectedWorkload. Then there is no surplus either.
	NoFloor bool `json:"-"`
}

// Savings computes the costs of the nodes from a price list. The cost of a replica is its share of
// its node (see costOf). Its cost on spot is the same share of the node's spot price in the list.
// Without a spot price in the list, it is the current cost times the average ratio of spot to
// on-demand in this cluster.
func (v *View) Savings(prices *pricing.Prices) *Savings {
	s, priced := v.nodeCosts(prices)
	ratio := 1.0 // of spot to on-demand; without any spot node no saving is assumed
	if ifOnDemand := s.Spot + s.CurrentSavings; ifOnDemand > 0 {
		ratio = s.Spot / ifOnDemand
	}
	maySpot := v.maySpot()
	for _, w := range v.Snapshot.Workloads {
		c := costOfWorkload(w, priced)
		if c.OnDemand+c.Spot == 0 || !v.Includes(w.Namespace) {
			continue
		}
		if w.InScope {
			c.addSurplus(w, priced, ratio, maySpot)
		}
		s.Workloads = append(s.Workloads, c)
		s.PossibleSavings += ptr.Deref(c.PossibleSavings, 0) / HoursPerMonth
		last := len(s.Namespaces) - 1 // the workloads are in the order of namespaces
		if last < 0 || s.Namespaces[last].Namespace != w.Namespace {
			s.Namespaces, last = append(s.Namespaces, NamespaceCost{Namespace: w.Namespace}), last+1
		}
		in := &s.Namespaces[last]
		if c.Cost == nil {
			in.UnknownCosts++
			continue
		}
		in.Cost += *c.Cost
		in.Saved += *c.Saved
	}
	slices.SortFunc(s.Workloads, func(a, b WorkloadCost) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.PossibleSavings, 0), ptr.Deref(a.PossibleSavings, 0)),
			cmp.Compare(ptr.Deref(b.Cost, 0), ptr.Deref(a.Cost, 0)), compareRefs(a.Ref, b.Ref))
	})
	return s
}

// nodeCosts returns the sums of the nodes, without workloads, and the costs of the nodes whose
// costs are known.
func (v *View) nodeCosts(prices *pricing.Prices) (*Savings, map[*snapshot.Node]*pricing.Cost) {
	s := &Savings{Namespace: v.Namespace, Workloads: []WorkloadCost{}, Namespaces: []NamespaceCost{}}
	s.NodePrices = NodePrices{Prices: prices.From, Unpriced: map[string]int{}}
	priced := make(map[*snapshot.Node]*pricing.Cost, len(v.Snapshot.Nodes))
	var totals pricing.Totals
	for _, n := range v.Snapshot.Nodes {
		c, _, ignored := prices.Cost(n.Node, n.Facts.Capacity.Type)
		s.Ignored = append(s.Ignored, ignored...)
		totals.Add(n.Facts.Capacity.Type, c)
		if c == nil {
			s.Unpriced[poolName(n)]++
			continue
		}
		priced[n] = c
		if n.Facts.Capacity.Type == decision.Spot {
			used := min(1, share(n, n.Pods...))
			s.UsedSavings += used * (c.OnDemand - c.Now)
			s.IdleSpot += (1 - used) * c.Now
		}
	}
	s.PricedNodes = len(priced)
	s.SpotNodes, s.OnDemandNodes = totals.Spot.Nodes, totals.OnDemand.Nodes
	s.Now, s.Spot, s.OnDemand = totals.Spot.Now+totals.OnDemand.Now, totals.Spot.Now, totals.OnDemand.Now
	s.AllOnDemand, s.CurrentSavings = totals.Spot.OnDemand+totals.OnDemand.OnDemand, totals.Spot.OnDemand-totals.Spot.Now
	if s.Spot > 0 {
		s.SpotUse = new(1 - s.IdleSpot/s.Spot)
	}
	return s, priced
}

// costOfWorkload returns the cost of the replicas of a workload that are on nodes.
func costOfWorkload(w *snapshot.Workload, priced map[*snapshot.Node]*pricing.Cost) WorkloadCost {
	c := WorkloadCost{Ref: refOf(w), Floor: w.Floor, NoFloor: !w.InScope}
	cost, saved, known := 0.0, 0.0, true
	for _, p := range w.Pods() {
		if p.Node == nil {
			continue
		}
		of, ok := costOf(p, priced)
		known = known && ok
		cost += of.Now
		if p.Node.Facts.Capacity.Type == decision.Spot {
			c.Spot++
			saved += of.OnDemand - of.Now
		} else {
			c.OnDemand++
		}
	}
	if known {
		c.Cost, c.Saved = &cost, &saved
	}
	return c
}

// addSurplus adds the replicas on on-demand beyond the floor that could be on spot, and what that
// would save.
func (c *WorkloadCost) addSurplus(w *snapshot.Workload, priced map[*snapshot.Node]*pricing.Cost, ratio float64,
	maySpot func(*snapshot.Pod) bool) {
	pods, surplus := surplusOf(w, maySpot)
	c.Surplus = surplus
	savings := make([]float64, len(pods))
	for i, p := range pods {
		cost, ok := costOf(p, priced)
		if !ok {
			return
		}
		savings[i] = max(0, cost.Now-cmp.Or(cost.Spot, cost.Now*ratio))
	}
	slices.SortFunc(savings, func(a, b float64) int { return cmp.Compare(b, a) })
	c.PossibleSavings = new(float64)
	for _, saving := range savings[:surplus] {
		*c.PossibleSavings += saving
	}
}

// costOf returns the costs of a replica in US dollars per month: its share of the costs of its
// node. ok is false if they are unknown. A pod without requests uses an unknown part of its node.
// Unrequested resources belong to no pod.
func costOf(p *snapshot.Pod, priced map[*snapshot.Node]*pricing.Cost) (cost pricing.Cost, ok bool) {
	of := priced[p.Node]
	if of == nil {
		return cost, false
	}
	part := share(p.Node, p) * HoursPerMonth
	return pricing.Cost{Now: part * of.Now, OnDemand: part * of.OnDemand, Spot: part * of.Spot}, part > 0
}

// share returns the part of a node that its pods request: the largest of their shares of CPU,
// memory and devices such as GPUs.
func share(n *snapshot.Node, pods ...*snapshot.Pod) (largest float64) {
	requested := v1.ResourceList{}
	for _, p := range pods {
		for name, amount := range p.Requests {
			sum := requested[name]
			sum.Add(amount)
			requested[name] = sum
		}
	}
	for name, sum := range requested {
		if allocatable := n.Status.Allocatable[name]; name != v1.ResourcePods && name != v1.ResourceEphemeralStorage && !allocatable.IsZero() {
			largest = max(largest, sum.AsApproximateFloat64()/allocatable.AsApproximateFloat64())
		}
	}
	return largest
}
