package main

import (
	"maps"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// placements maps each workload to the number of its pods on each node.
type placements map[string]map[string]int

func (p placements) add(app, node string) {
	if p[app] == nil {
		p[app] = map[string]int{}
	}
	p[app][node]++
}

// Skew is the difference between the domain with the most pods of a workload and the domain with
// the fewest, which may have none. It has the maximum over all workloads, and their mean.
type Skew struct {
	Max  int     `json:"max"`
	Mean float64 `json:"mean"`
}

// Spread describes the distribution of the pods.
type Spread struct {
	// Over nodes, zones and pools (instance type and zone), of both classes together.
	Node Skew `json:"node"`
	Zone Skew `json:"zone"`
	Pool Skew `json:"pool"`
	// SpotPool is over the spot nodes of each pool, which are reclaimed together, and counts only
	// the pods on spot. It excludes the floor on on-demand, where a few nodes get more than their
	// share on purpose.
	SpotPool Skew `json:"spotPool"`
	// OnSpot is the share of all pods that run on spot.
	OnSpot float64 `json:"onSpot"`
	// SpotUsed is the share of the pods on spot among the pods that may run there. It assumes one
	// pod of each workload on on-demand, the default floor of this project's scheduler.
	SpotUsed float64 `json:"spotUsed"`
	// WithoutOnDemand is the number of workloads without a pod on on-demand.
	WithoutOnDemand int `json:"withoutOnDemand"`
}

// spreadOf returns the spread of all workloads over all nodes.
func spreadOf(placed placements, workloads []workload, nodes []lab.NodeSpec) Spread {
	byName := map[string]lab.NodeSpec{}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	isSpot := func(n lab.NodeSpec) bool { return n.Capacity == lab.Spot }
	all := func(lab.NodeSpec) bool { return true }
	pool := func(n lab.NodeSpec) string { return n.InstanceType + " " + n.Zone }
	var perNode, perZone, perPool, perSpotPool []int
	var spread Spread
	pods, onSpot, mayBeOnSpot, onSpotOfThese := 0, 0, 0, 0
	for _, w := range workloads {
		counts, spot := placed[w.app], 0
		for node, n := range counts {
			if isSpot(byName[node]) {
				spot += n
			}
		}
		if spot == w.replicas {
			spread.WithoutOnDemand++
		}
		pods, onSpot = pods+w.replicas, onSpot+spot
		budget := w.replicas - 1
		mayBeOnSpot, onSpotOfThese = mayBeOnSpot+budget, onSpotOfThese+min(spot, budget)

		perNode = append(perNode, skew(counts, nodes, all, func(n lab.NodeSpec) string { return n.Name }))
		perZone = append(perZone, skew(counts, nodes, all, func(n lab.NodeSpec) string { return n.Zone }))
		perPool = append(perPool, skew(counts, nodes, all, pool))
		perSpotPool = append(perSpotPool, skew(counts, nodes, isSpot, pool))
	}
	spread.Node, spread.Zone, spread.Pool, spread.SpotPool = skewOf(perNode), skewOf(perZone), skewOf(perPool), skewOf(perSpotPool)
	spread.OnSpot = float64(onSpot) / float64(pods)
	spread.SpotUsed = 1
	if mayBeOnSpot > 0 {
		spread.SpotUsed = float64(onSpotOfThese) / float64(mayBeOnSpot)
	}
	return spread
}

// skew returns the difference between the fullest and the emptiest domain of the nodes that in
// selects; 0 if there are none.
func skew(counts map[string]int, nodes []lab.NodeSpec, in func(lab.NodeSpec) bool, domain func(lab.NodeSpec) string) int {
	perDomain := map[string]int{}
	for _, node := range nodes {
		if in(node) {
			perDomain[domain(node)] += counts[node.Name]
		}
	}
	if len(perDomain) == 0 {
		return 0
	}
	sizes := slices.Collect(maps.Values(perDomain))
	return slices.Max(sizes) - slices.Min(sizes)
}

func skewOf(skews []int) Skew {
	sum := 0
	for _, s := range skews {
		sum += s
	}
	return Skew{Max: slices.Max(skews), Mean: float64(sum) / float64(len(skews))}
}
