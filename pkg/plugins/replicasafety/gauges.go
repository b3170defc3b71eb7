package replicasafety

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// observe reads the values of the metrics from the informer caches at a scrape. It must not be
// called concurrently.
func (p *Plugin) observe() placement.Observed {
	seen := placement.Observed{
		CachesSynced: p.synced(), Bound: map[placement.BoundPart]int{}, Nodes: map[decision.Capacity]int{},
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
	statuses := p.owners.FloorStatuses(pods, p.profile, func(node string) (decision.CapacityType, bool) {
		facts, ok := nodes[node]
		return facts.Capacity.Type, ok
	})
	seen.FloorsUnmet, seen.FloorDeficit, seen.LongestDeficit = p.deficits.Update(statuses, p.clock.Now())
	for _, s := range statuses {
		if s.OnDemand == 0 && s.Spot == s.Exempt && s.FloorDeficit == 0 {
			continue // without a floor or a choice of capacity type
		}
		seen.Bound[placement.BoundPart{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		seen.Bound[placement.BoundPart{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		seen.Bound[placement.BoundPart{Capacity: decision.Spot, Floor: true}] += s.FloorOnSpot
		seen.Bound[placement.BoundPart{Capacity: decision.Spot}] += s.Spot - s.FloorOnSpot - s.Exempt
	}
	return seen
}

// readNodes reads all nodes of the informer cache. Like the counter, it applies the label grace
// only if some node has or had a capacity label.
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
