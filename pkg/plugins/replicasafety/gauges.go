package replicasafety

import "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"

// gauges reads the values of the metrics from the informer caches at a scrape. It must not be
// called concurrently.
func (p *Plugin) gauges() profilemetrics.Gauges {
	values := p.cluster.Read(p.clock.Now())
	values.CachesSynced = p.synced()
	values.WaitingForOnDemand, values.LongestWait = p.waiting.ForOnDemand()
	return values
}
