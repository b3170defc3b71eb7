package replicasafety

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
)

const subsystem = "spot_aware_scheduler"

// These are the metrics that only the scheduler has, served by the scheduler's own /metrics
// endpoint. docs/metrics.md lists them. Their labels are small closed sets. The label profile is
// the schedulerName of a configured profile.
var (
	decisionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "decision_duration_seconds",
		Help: "Time of PreFilter of ReplicaSafety: find the pod's owner, count its siblings, plan its placement and choose the nodes " +
			"to search. " +
			"The label search is 'few', 'all', or 'all-after-few' if the pod fit on none of the few nodes.",
		// 1 us to 0.5 s: a warm count takes microseconds. A cold count of 100,000 nodes takes tens
		// of milliseconds.
		Buckets:        metrics.ExponentialBuckets(1e-6, 2, 20),
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "search"})

	boundDesc = metrics.NewDesc(subsystem+"_bound_pods",
		"Bound pods, by capacity type of the node and by their part of the workload: 'floor' (on spot: the replicas that the "+
			"floor lacks on on-demand) or 'beyond-floor'. "+
			"Pods that may run on spot only are excluded. Pods that may run on on-demand only are excluded from beyond-floor.",
		[]string{"profile", "capacity_type", "part"}, nil, metrics.ALPHA, "")
)

// gaugeValues contains the values that are measured when the metrics are scraped.
type gaugeValues struct {
	profilemetrics.Gauges
	Bound map[boundPart]int
}

// boundPart classifies bound pods by capacity type and by whether they are part of the floor. Like
// the floor, it counts all revisions of a workload together. If a floor lacks replicas on on-demand
// nodes, as many pods on spot count as part of it. Pods beyond the floor could run on spot, so pods
// that require on-demand nodes are excluded there.
type boundPart struct {
	Capacity decision.CapacityType
	Floor    bool
}

// gaugeCollector collects the values of all profiles of this process when the metrics are scraped.
type gaugeCollector struct {
	metrics.BaseStableCollector

	mu       sync.Mutex
	profiles map[string]func() gaugeValues
}

var (
	collector    = &gaugeCollector{profiles: map[string]func() gaugeValues{}}
	registerOnce sync.Once
)

// registerMetrics registers the metrics with the scheduler's registry. A scrape calls read for
// the values of profile, never concurrently.
func registerMetrics(profile string, read func() gaugeValues) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(decisionDuration)
		legacyregistry.CustomMustRegister(collector)
	})
	profilemetrics.RegisterCounters(profile)
	for _, scope := range []placement.Scope{placement.FewNodes, placement.AllNodes, placement.AllAfterFew} {
		decisionDuration.WithLabelValues(profile, string(scope))
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	collector.profiles[profile] = profilemetrics.Limited(read)
}

func (o *gaugeCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	profilemetrics.Describe(ch)
	ch <- boundDesc
}

func (o *gaugeCollector) CollectWithStability(ch chan<- metrics.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for profile, current := range o.profiles {
		values := current()
		values.Collect(ch, profile)
		for _, capacity := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
			profilemetrics.Send(ch, boundDesc, float64(values.Bound[boundPart{capacity, true}]), profile, capacity.String(), "floor")
			profilemetrics.Send(ch, boundDesc, float64(values.Bound[boundPart{capacity, false}]), profile, capacity.String(), "beyond-floor")
		}
	}
}

// recordDecision records the duration of one decision, by the scope of the search that follows it.
func recordDecision(profile string, scope placement.Scope, seconds float64) {
	decisionDuration.WithLabelValues(profile, string(scope)).Observe(seconds)
}
