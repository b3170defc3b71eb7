package replicasafety

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// gauges reads the values of the metrics from the informer caches at a scrape. It must not be
// called concurrently.
func (p *Plugin) gauges() placement.Gauges {
	values := placement.Gauges{Bound: map[placement.BoundPart]int{}}
	values.CachesSynced, values.Nodes = p.synced(), map[decision.Capacity]int{}
	values.WaitingForOnDemand, values.LongestWait = p.waiting.ForOnDemand()
	nodes, evidence := p.readNodes()
	for _, facts := range nodes {
		values.Nodes[facts.Capacity]++
	}
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return values
	}
	statuses := p.owners.FloorStatuses(pods, p.profile, evidence, p.volumesOf)
	values.FloorsUnmet, values.FloorDeficit, values.LongestDeficit = p.deficits.Update(statuses, p.clock.Now())
	for _, s := range statuses {
		if s.OnDemand == 0 && s.Spot == s.Exempt && s.FloorDeficit == 0 {
			continue // without a floor or a choice of capacity type
		}
		values.Bound[placement.BoundPart{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		values.Bound[placement.BoundPart{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		values.Bound[placement.BoundPart{Capacity: decision.Spot, Floor: true}] += s.FloorOnSpot
		values.Bound[placement.BoundPart{Capacity: decision.Spot}] += s.Spot - s.FloorOnSpot - s.Exempt
	}
	return values
}

// readNodes reads all nodes of the informer cache.
func (p *Plugin) readNodes() (map[string]decision.Node, *workload.NodeEvidence) {
	evidence := workload.NewNodeEvidence(p.policy)
	nodes, err := p.nodes.List(labels.Everything())
	if err != nil {
		return nil, evidence
	}
	now := p.clock.Now()
	read := make(map[string]decision.Node, len(nodes))
	for _, node := range nodes {
		facts, _ := p.reader.Read(node, now)
		read[node.Name] = facts
		evidence.Set(node, facts.Capacity, now)
	}
	return read, evidence
}
