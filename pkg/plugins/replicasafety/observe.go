package replicasafety

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
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
	now, unmet := p.clock.Now(), map[kube.OwnerKey]time.Time{}
	for key, s := range standings {
		if s.FloorDeficit > 0 {
			since, before := p.unmetSince[key]
			if !before {
				since = now
			}
			unmet[key] = since
			seen.FloorsUnmet++
			seen.FloorDeficit += s.FloorDeficit
			seen.LongestDeficit = max(seen.LongestDeficit, now.Sub(since))
		}
		onSpot := min(s.Spot, s.FloorDeficit) // of the floor
		if len(s.Misplaced) > 0 {
			onSpot = len(s.Misplaced)
		}
		seen.Bound[placement.Standing{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		seen.Bound[placement.Standing{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		seen.Bound[placement.Standing{Capacity: decision.Spot, Floor: true}] += onSpot
		seen.Bound[placement.Standing{Capacity: decision.Spot}] += s.Spot - onSpot
	}
	p.unmetSince = unmet
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
