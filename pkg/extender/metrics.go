package extender

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const subsystem = "spot_aware_scheduler"

// The metrics that only the extender has; docs/metrics.md lists them. Their labels are small closed
// sets; profile is the schedulerName of the configured profile.
var (
	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "extender_request_duration_seconds",
		Help: "Time from a request's headers to the end of its answer, by verb ('filter', 'prioritize', 'preempt') and outcome: 'answered', " +
			"'forwarded' (to the leader), 'refused' (bad request) or 'failed' (no decision was possible; kube-scheduler retries).",
		// 50 us to 1.6 s: a request with 5,000 nodes takes less than a millisecond.
		Buckets:        metrics.ExponentialBuckets(50e-6, 2, 16),
		StabilityLevel: metrics.ALPHA,
	}, []string{"verb", "outcome"})

	approvedDesc = metrics.NewDesc(subsystem+"_extender_approved_pods",
		"Pods that an answer approved and that are not known to be bound yet. They count as if they "+
			"were bound. If the value only grows, the watch has stalled.", []string{"profile"}, nil, metrics.ALPHA, "")
)

// collector collects the current values when metrics are scraped.
type collector struct {
	metrics.BaseStableCollector
	*Extender
	synced func() bool
	floors func() profilemetrics.Floors
}

// RegisterMetrics registers the metrics with the registry of the Kubernetes components. It must be
// called once, with the result of Watch.
func (e *Extender) RegisterMetrics(synced func() bool) {
	var deficits workload.Deficits
	floors := profilemetrics.Limited(func() (floors profilemetrics.Floors) {
		pods, _ := e.pods.List(labels.Everything()) // a cache lister returns no error
		statuses := e.owners.FloorStatuses(pods, e.profile, e.cluster.Evidence, noVolumes)
		floors.FloorsUnmet, floors.FloorDeficit, floors.LongestDeficit = deficits.Update(statuses, e.clock.Now())
		return floors
	})
	legacyregistry.MustRegister(requestDuration)
	legacyregistry.CustomMustRegister(&collector{Extender: e, synced: synced, floors: floors})
	profilemetrics.RegisterCounters(e.profile)
	for _, verb := range []string{"filter", "prioritize", "preempt"} {
		for _, outcome := range []string{answered, forwarded, refused, failed} {
			requestDuration.WithLabelValues(verb, outcome)
		}
	}
}

func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	profilemetrics.Describe(ch)
	ch <- approvedDesc
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	profilemetrics.Send(ch, approvedDesc, float64(c.Approved()), c.profile)
	c.mu.Lock()
	c.cluster.Refresh(c.clock.Now())
	nodes := c.cluster.Nodes()
	c.mu.Unlock()
	gauges := profilemetrics.Gauges{CachesSynced: c.synced(), Nodes: nodes, Floors: c.floors()}
	gauges.WaitingForOnDemand, gauges.LongestWait = c.waiting.ForOnDemand()
	gauges.Collect(ch, c.profile)
}
