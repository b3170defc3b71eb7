package replicasafety

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// observe looks at the informer caches, at every scrape of the metrics. It must not be called concurrently.
func (p *Plugin) observe() placement.Observed {
	seen := placement.Observed{
		CachesSynced: p.synced(), Bound: map[placement.Standing]int{}, Nodes: map[decision.Capacity]int{},
	}
	seen.WaitingForOnDemand, seen.LongestWait = p.waiting.ForOnDemand()
	nodes := p.readNodes()
	for _, facts := range nodes {
		seen.Nodes[facts.Capacity]++
	}
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return seen
	}
	standings := p.owners.Standings(pods, p.profile, func(node string) (decision.CapacityType, bool) {
		facts, ok := nodes[node]
		return facts.Capacity.Type, ok
	})
	seen.FloorsUnmet, seen.FloorDeficit, seen.LongestDeficit = p.deficits.Update(standings, p.clock.Now())
	for _, s := range standings {
		if s.OnDemand == 0 && s.Spot == s.Exempt && s.FloorDeficit == 0 {
			continue // without a floor or a choice
		}
		seen.Bound[placement.Standing{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		seen.Bound[placement.Standing{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		seen.Bound[placement.Standing{Capacity: decision.Spot, Floor: true}] += s.FloorOnSpot
		seen.Bound[placement.Standing{Capacity: decision.Spot}] += s.Spot - s.FloorOnSpot - s.Exempt
	}
	return seen
}

// readNodes reads all nodes of the informer cache; like the counter, it lets nodes settle only where others are or were labelled.
func (p *Plugin) readNodes() map[string]decision.Node {
	nodes, err := p.nodes.List(labels.Everything())
	if err != nil {
		return nil
	}
	now := p.clock.Now()
	labeled := p.labels.Seen()
	read := make(map[string]decision.Node, len(nodes))
	for _, node := range nodes {
		read[node.Name], _ = p.reader.Read(node, labeled, now)
	}
	return read
}
