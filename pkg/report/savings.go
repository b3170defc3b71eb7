package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Savings is what the nodes cost, in US dollars per hour, and what is left on the table.
type Savings struct {
	SpotNodes     int `json:"spotNodes"`
	OnDemandNodes int `json:"onDemandNodes"`
	// Now is what the nodes cost that have a price; AllOnDemand what they would cost if all were on-demand.
	Now         float64 `json:"usdPerHour"`
	AllOnDemand float64 `json:"usdPerHourAllOnDemand"`
	// Prices says where prices are from. Unpriced are the nodes that have none, as TYPE/ZONE (or their name) with how many there are: they are
	// in no sum.
	Prices string `json:"prices"`
	// Saved is what spot saves now: what the spot nodes would cost more as on-demand. What is paid less for on-demand is not spot's doing.
	Saved float64 `json:"savedUsdPerHour"`
	// Ignored are the annotations that are no price; the node has the list's.
	Ignored  []string       `json:"ignored,omitempty"`
	Unpriced map[string]int `json:"unpriced,omitempty"`
	// Namespace is the one whose workloads are in Surplus; "" for all. Whoever has the cluster read says it.
	Namespace string `json:"namespace,omitempty"`
	// Surplus are the workloads with replicas on on-demand beyond their floors that could be on spot: those that cost most first. OnTheTable
	// is what all of them would save there.
	Surplus    []Surplus `json:"surplus"`
	OnTheTable float64   `json:"onTheTableUsdPerHour"`
}

// Surplus is a workload with replicas on on-demand beyond its floor.
type Surplus struct {
	Ref      `json:",inline"`
	Floor    int `json:"floor"`
	OnDemand int `json:"onDemand"`
	// Replicas is how many of them could be on spot; Saves what that would save.
	Replicas int     `json:"replicas"`
	Saves    float64 `json:"savesUsdPerHour"`
}

// costs is what a node costs.
type costs struct {
	now, onDemand float64
	// spot is what it would cost as spot.
	spot float64
}

// Savings works out what the nodes cost by a price list. What a replica costs is its share of its node: the larger of the shares of CPU and
// memory that it asks for. What it would cost on spot is its share of what the same node costs there by the list, or else of what spot costs
// on average in this cluster.
func (v *View) Savings(prices *Prices) *Savings {
	s := &Savings{Prices: prices.From, Unpriced: map[string]int{}, Surplus: []Surplus{}}
	priced := map[*cluster.Node]*costs{}
	var spotNow, spotOnDemand float64
	for _, n := range v.Snapshot.Nodes {
		isSpot := n.Facts.Capacity.Type == decision.Spot
		if isSpot {
			s.SpotNodes++
		} else {
			s.OnDemandNodes++
		}
		c, ignored := costsOf(n, prices)
		s.Ignored = append(s.Ignored, ignored...)
		if c == nil {
			s.Unpriced[poolName(n)]++
			continue
		}
		priced[n] = c
		s.Now += c.now
		s.AllOnDemand += c.onDemand
		if isSpot {
			spotNow += c.now
			spotOnDemand += c.onDemand
		}
	}
	ratio := 1.0 // of spot to on-demand; nothing is known to be saved without any spot
	if spotOnDemand > 0 {
		ratio = spotNow / spotOnDemand
	}
	s.Saved = spotOnDemand - spotNow
	mayLeave := v.mayLeave()
	for _, w := range v.Snapshot.Workloads {
		if surplus, ok := surplusOf(w, priced, ratio, mayLeave); ok {
			s.Surplus = append(s.Surplus, surplus)
			s.OnTheTable += surplus.Saves
		}
	}
	slices.SortFunc(s.Surplus, func(a, b Surplus) int { return cmp.Or(cmp.Compare(b.Saves, a.Saves), compareRefs(a.Ref, b.Ref)) })
	return s
}

// costsOf returns what a node costs, nil if that is not known, and the annotations that are no price. spot is 0 where the list does not say.
func costsOf(n *cluster.Node, prices *Prices) (c *costs, ignored []string) {
	instanceType, zone := n.Labels[v1.LabelInstanceTypeStable], n.Labels[v1.LabelTopologyZone]
	now, known, err := annotated(n, PriceAnnotation)
	if err != nil {
		ignored = append(ignored, err.Error())
	}
	onDemand, knownOnDemand, err := annotated(n, OnDemandPriceAnnotation)
	if err != nil {
		ignored = append(ignored, err.Error())
	}
	if !knownOnDemand {
		onDemand, knownOnDemand = prices.lookUp(instanceType, zone, decision.OnDemand)
	}
	if !knownOnDemand && known && n.Facts.Capacity.Type == decision.OnDemand {
		onDemand, knownOnDemand = now, true
	}
	if !known {
		now, known = prices.lookUp(instanceType, zone, n.Facts.Capacity.Type)
	}
	if !known && n.Facts.Capacity.Type == decision.OnDemand {
		now, known = onDemand, knownOnDemand
	}
	if !known || !knownOnDemand {
		return nil, ignored
	}
	spot, _ := prices.lookUp(instanceType, zone, decision.Spot)
	return &costs{now: now, onDemand: onDemand, spot: spot}, ignored
}

func annotated(n *cluster.Node, key string) (price float64, given bool, err error) {
	text, given := n.Annotations[key]
	if !given {
		return 0, false, nil
	}
	price, err = strconv.ParseFloat(text, 64)
	if err != nil || !(price >= 0) || math.IsInf(price, 0) {
		return 0, false, fmt.Errorf("node %s: annotation %s: invalid value %q: expected US dollars per hour, 0 or more", n.Name, key, text)
	}
	return price, true, nil
}

// mayLeave returns which pods on on-demand could be on spot at all: their own selector or affinity does not keep them off spot, and some
// spot node suits them. Without any spot node nobody knows which there would be.
func (v *View) mayLeave() func(*cluster.Pod) bool {
	spot := slices.DeleteFunc(slices.Clone(v.Snapshot.Nodes), func(n *cluster.Node) bool { return n.Facts.Capacity.Type != decision.Spot })
	feasibility := cluster.NewFeasibility(spot)
	return func(p *cluster.Pod) bool {
		return !kube.OnlyOnDemand(p.Pod, v.Policy) && (len(spot) == 0 || feasibility.Somewhere(p))
	}
}

// surplusOf returns what a workload has on on-demand beyond its floor that could be on spot; false if nothing. ratio is what spot costs on
// average, as a share of on-demand.
func surplusOf(w *cluster.Workload, priced map[*cluster.Node]*costs, ratio float64, mayLeave func(*cluster.Pod) bool) (Surplus, bool) {
	if !w.Ours {
		return Surplus{}, false
	}
	s := Surplus{Floor: w.Floor}
	var savings []float64
	for _, r := range w.Revisions {
		for _, p := range r.Pods {
			if p.Node == nil || p.Node.Facts.Capacity.Type != decision.OnDemand {
				continue
			}
			s.OnDemand++
			if of := &p.Subject.Pod.Workload; w.Floor > 0 && of.Ordered && of.Ordinal < w.Floor {
				continue // it is the floor's, whatever else is there
			}
			if !mayLeave(p) {
				continue
			}
			saves := 0.0
			if c := priced[p.Node]; c != nil {
				saves = share(p) * (c.now - cmp.Or(c.spot, c.now*ratio))
			}
			savings = append(savings, max(0, saves))
		}
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
	for _, saves := range savings[:s.Replicas] {
		s.Saves += saves
	}
	return s, true
}

// share is how much of its node a pod pays for: the larger of its shares of CPU and memory. What nobody asks for is nobody's.
func share(p *cluster.Pod) float64 {
	of := func(name v1.ResourceName) float64 {
		have, asks := p.Node.Status.Allocatable[name], p.Requests[name]
		if have.IsZero() {
			return 0
		}
		return asks.AsApproximateFloat64() / have.AsApproximateFloat64()
	}
	return max(of(v1.ResourceCPU), of(v1.ResourceMemory))
}
