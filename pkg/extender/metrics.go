package extender

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const subsystem = "spot_aware_scheduler"

// The metrics of the extender; docs/metrics.md lists them. Metrics that the scheduler also has mean
// the same there. Their labels are small closed sets; profile is the schedulerName of the
// configured profile.
var (
	placements = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "placements_total",
		Help:           "Pods bound, by capacity type of the node and by the reason for the choice: floor, overflow (on-demand beyond the floor), budget, or the exceptions exempt, fallback, rollout-relief and schedule-anyway.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "capacity_type", "reason"})

	invalidAnnotations = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "invalid_annotations_total",
		Help:           "Annotations ignored because their value cannot be parsed, counted once per pod.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile"})

	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "extender_request_duration_seconds",
		Help: "Time from a request's headers to the end of its answer, by verb (filter, prioritize, preempt) and outcome: answered, " +
			"forwarded (to the leader), refused (bad request) or failed (no decision was possible; the scheduler retries).",
		// 50 us to 1.6 s: a request with 5,000 nodes takes less than a millisecond.
		Buckets:        metrics.ExponentialBuckets(50e-6, 2, 16),
		StabilityLevel: metrics.ALPHA,
	}, []string{"verb", "outcome"})

	approvedDesc = metrics.NewDesc(subsystem+"_extender_approved_pods",
		"Pods that an answer approved and that are not known to be bound yet. They count as if they were bound.", []string{"profile"}, nil, metrics.ALPHA, "")
	cachesSyncedDesc = metrics.NewDesc(subsystem+"_caches_synced",
		"1 if the informer caches that decisions depend on have synced, otherwise 0.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestWaitDesc = metrics.NewDesc(subsystem+"_longest_wait_for_on_demand_seconds",
		"Longest current wait for on-demand capacity, in seconds since this process first found the pod unschedulable; 0 if no pod waits.", []string{"profile"}, nil, metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc(subsystem+"_waiting_for_on_demand_pods",
		"Pods that wait for on-demand capacity because the policy keeps them off spot.", []string{"profile"}, nil, metrics.ALPHA, "")
	floorsUnmetDesc = metrics.NewDesc(subsystem+"_floors_unmet_workloads",
		"Workloads with fewer replicas on on-demand nodes than their floor. The replicas of all live revisions count, and the floor is at most the number of live pods.", []string{"profile"}, nil, metrics.ALPHA, "")
	deficitDesc = metrics.NewDesc(subsystem+"_floor_deficit_replicas",
		"Replicas missing on on-demand nodes, summed over the workloads with an unmet floor.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestDeficitDesc = metrics.NewDesc(subsystem+"_longest_floor_deficit_seconds",
		"Seconds that the longest unmet floor has been unmet, as observed by this process; 0 if every floor is met.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes, by capacity type and by its source: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// collector collects the current values when metrics are scraped.
type collector struct {
	metrics.BaseStableCollector
	*Extender
	synced func() bool
	floors floors
}

// floors has the last observed deficits of workloads.
type floors struct {
	mu              sync.Mutex
	deficits        workload.Deficits
	nextObservation time.Time // when to observe again

	unmet, missing int
	longest        time.Duration
}

// observationShare limits observations to a hundredth of one CPU, however often metrics are
// scraped: an observation reads all pods.
const observationShare = 100

// observe returns the number of unmet floors, the number of missing replicas and the longest time
// that a floor has been unmet.
func (c *collector) observe() (unmet, lacking int, longest time.Duration) {
	f := &c.floors
	f.mu.Lock()
	defer f.mu.Unlock()
	start := time.Now()
	if start.Before(f.nextObservation) {
		return f.unmet, f.missing, f.longest
	}
	if pods, err := c.pods.List(labels.Everything()); err == nil {
		f.unmet, f.missing, f.longest = f.deficits.Update(c.owners.FloorStatuses(pods, c.profile, c.index.capacityOf), c.clock.Now())
		f.nextObservation = start.Add(observationShare * time.Since(start))
	}
	return f.unmet, f.missing, f.longest
}

// RegisterMetrics registers the metrics with the registry of the Kubernetes components. It must be
// called once, with the result of Watch.
func (e *Extender) RegisterMetrics(synced func() bool) {
	legacyregistry.MustRegister(placements, invalidAnnotations, requestDuration)
	legacyregistry.CustomMustRegister(&collector{Extender: e, synced: synced})
	// Export every series as 0 from the start: a series that appears with its first count is not an
	// increase to Prometheus.
	for capacity, outcomes := range map[decision.CapacityType][]decision.Outcome{
		decision.OnDemand: {decision.OnFloor, decision.Overflow},
		decision.Spot:     {decision.InBudget, decision.ByExemption, decision.ByFallback, decision.ByRolloutRelief, decision.ByScheduleAnyway},
	} {
		for _, outcome := range outcomes {
			placements.WithLabelValues(e.profile, capacity.String(), string(outcome))
		}
	}
	invalidAnnotations.WithLabelValues(e.profile)
	for _, verb := range []string{"filter", "prioritize", "preempt"} {
		for _, outcome := range []string{answered, forwarded, refused, failed} {
			requestDuration.WithLabelValues(verb, outcome)
		}
	}
}

func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		cachesSyncedDesc, approvedDesc, waitingDesc, longestWaitDesc, floorsUnmetDesc, deficitDesc, longestDeficitDesc, nodesDesc,
	} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, append([]string{c.profile}, labels...)...)
	}
	synced := 0.0
	if c.synced() {
		synced = 1
	}
	gauge(cachesSyncedDesc, synced)
	approved, waiting := c.pending.counts()
	gauge(approvedDesc, float64(approved))
	gauge(waitingDesc, float64(waiting))
	longest := time.Duration(0)
	for _, entry := range c.pending.all() {
		if entry.forOnDemand {
			longest = max(longest, c.clock.Since(entry.since))
		}
	}
	gauge(longestWaitDesc, longest.Seconds())
	unmet, lacking, longestUnmet := c.observe()
	gauge(floorsUnmetDesc, float64(unmet))
	gauge(deficitDesc, float64(lacking))
	gauge(longestDeficitDesc, longestUnmet.Seconds())
	for capacity, n := range c.index.nodesBy() {
		gauge(nodesDesc, float64(n), capacity.Type.String(), capacity.Source.String())
	}
}
