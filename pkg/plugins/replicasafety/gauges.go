package replicasafety

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// gauges reads the values of the metrics from the informer caches at a scrape. It must not be
// called concurrently.
func (p *Plugin) gauges() profilemetrics.Gauges {
	values := profilemetrics.Gauges{Bound: map[profilemetrics.BoundPart]int{}}
	values.CachesSynced, values.Nodes = p.synced(), map[decision.Capacity]int{}
	values.WaitingForOnDemand, values.LongestWait = p.waiting.ForOnDemand()
	nodes, _ := p.nodes.List(labels.Everything()) // a cache lister returns no error
	evidence, now := workload.NewNodeEvidence(p.policy), p.clock.Now()
	for _, node := range nodes {
		capacity := p.reader.Capacity(node, now)
		values.Nodes[capacity]++
		evidence.Set(node, capacity, now)
	}
	pods, _ := p.pods.List(labels.Everything())
	statuses := p.owners.FloorStatuses(pods, p.profile, evidence, p.volumesOf)
	values.FloorsUnmet, values.FloorDeficit, values.LongestDeficit = p.deficits.Update(statuses, now)
	for _, s := range statuses {
		if s.OnDemand == 0 && s.Spot == s.Exempt && s.FloorDeficit == 0 {
			continue // without a floor or a choice of capacity type
		}
		values.Bound[profilemetrics.BoundPart{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		values.Bound[profilemetrics.BoundPart{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		values.Bound[profilemetrics.BoundPart{Capacity: decision.Spot, Floor: true}] += s.FloorOnSpot
		values.Bound[profilemetrics.BoundPart{Capacity: decision.Spot}] += s.Spot - s.FloorOnSpot - s.Exempt
	}
	return values
}
