// Package costs serves the hourly costs of the nodes as metrics. It computes them like kubectl spot
// savings, with package pricing, so that both report the same figures.
package costs

import (
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

var (
	nowDesc = metrics.NewDesc("hourly_cost_usd",
		"Cost of the nodes in US dollars per hour, by capacity type. Nodes with an unknown price are not included.",
		"capacity_type")
	onDemandDesc = metrics.NewDesc("hourly_on_demand_cost_usd",
		"Cost of the same nodes in US dollars per hour if all were on-demand, by their capacity type.",
		"capacity_type")
	unpricedDesc = metrics.NewDesc("unpriced_nodes",
		"Nodes with an unknown price, by capacity type.",
		"capacity_type")
	nodeDesc = metrics.NewDesc("node_hourly_on_demand_cost_usd",
		"Cost of a node in US dollars per hour if it were on-demand, for the rules of OpenCost; NaN if the price is unknown.",
		"node", "capacity_type")
)

// Collector computes the costs when metrics are scraped. It examines only nodes, never pods.
type Collector struct {
	basemetrics.BaseStableCollector

	nodes    corelisters.NodeLister
	synced   <-chan struct{}
	prices   *pricing.Prices
	capacity func(*v1.Node, time.Time) decision.CapacityType
}

// NewCollector returns a collector that serves nothing until synced is closed. capacity returns the
// capacity type of a node at a time. It must be safe for concurrent use.
func NewCollector(
	nodes corelisters.NodeLister, synced <-chan struct{}, prices *pricing.Prices, capacity func(*v1.Node, time.Time) decision.CapacityType,
) *Collector {
	return &Collector{nodes: nodes, synced: synced, prices: prices, capacity: capacity}
}

// DescribeWithStability implements basemetrics.StableCollector.
func (c *Collector) DescribeWithStability(ch chan<- *basemetrics.Desc) {
	for _, desc := range []*basemetrics.Desc{nowDesc, onDemandDesc, unpricedDesc, nodeDesc} {
		ch <- desc
	}
}

// CollectWithStability implements basemetrics.StableCollector.
func (c *Collector) CollectWithStability(ch chan<- basemetrics.Metric) {
	select {
	case <-c.synced:
	default:
		return // the sums of some nodes would be wrong
	}
	nodes, now := snapshot.All(c.nodes), time.Now()
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) }) // the order of kubectl spot savings
	var totals pricing.Totals
	for _, node := range nodes {
		capacity := c.capacity(node, now)
		cost, onDemand, _ := c.prices.Cost(node, capacity)
		totals.Add(capacity, cost)
		metrics.SendGauge(ch, nodeDesc, ptr.Deref(onDemand, math.NaN()), node.Name, capacity.String())
	}
	for capacity, total := range map[decision.CapacityType]pricing.Total{decision.Spot: totals.Spot, decision.OnDemand: totals.OnDemand} {
		metrics.SendGauge(ch, nowDesc, total.Now, capacity.String())
		metrics.SendGauge(ch, onDemandDesc, total.OnDemand, capacity.String())
		metrics.SendGauge(ch, unpricedDesc, float64(total.Unpriced), capacity.String())
	}
}
