package extender

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const subsystem = "spot_aware_scheduler"

// The metrics of the extender. docs/metrics.md lists them. Those that the scheduler has as well mean the same. Their labels are small
// closed sets; profile is the schedulerName of the configured profile.
var (
	placements = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "placements_total",
		Help:           "Pods bound, by capacity type of the node and by why it was chosen: floor, overflow (on-demand beyond the floor), budget, or the exceptions exempt, fallback, rollout-relief and schedule-anyway.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "capacity_type", "reason"})

	invalidAnnotations = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "invalid_annotations_total",
		Help:           "Annotations that were ignored because their value does not parse, counted once per pod.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile"})

	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "extender_request_duration_seconds",
		Help: "Time from a request's headers to the end of its answer, by verb (filter, prioritize, preempt) and by outcome: answered, " +
			"forwarded (to the replica that leads), refused (a bad request), or failed (nothing could be decided; the scheduler tries again).",
		// 50 us to 1.6 s: 5,000 nodes take about a millisecond.
		Buckets:        metrics.ExponentialBuckets(50e-6, 2, 16),
		StabilityLevel: metrics.ALPHA,
	}, []string{"verb", "outcome"})

	approvedDesc = metrics.NewDesc(subsystem+"_extender_approved_pods",
		"Pods that an answer let go somewhere and that are not known to be bound yet. They count as if they were.", []string{"profile"}, nil, metrics.ALPHA, "")
	cachesSyncedDesc = metrics.NewDesc(subsystem+"_caches_synced",
		"1 when the informer caches that decisions are made from have been filled, 0 before.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestWaitDesc = metrics.NewDesc(subsystem+"_longest_wait_for_on_demand_seconds",
		"How long the one of these pods has waited that has waited the longest, since it was first found unschedulable by this process; 0 without any.", []string{"profile"}, nil, metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc(subsystem+"_waiting_for_on_demand_pods",
		"Pods that wait for on-demand room because the policy keeps them off spot.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes by capacity type and by what said so: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// collector collects what is known when metrics are asked for.
type collector struct {
	metrics.BaseStableCollector
	*Extender
	synced func() bool
}

// RegisterMetrics registers the metrics with the registry of Kubernetes' components. It is to be called once, with what Watch returned.
func (e *Extender) RegisterMetrics(synced func() bool) {
	legacyregistry.MustRegister(placements, invalidAnnotations, requestDuration)
	legacyregistry.CustomMustRegister(&collector{Extender: e, synced: synced})
	// Every series is there from the start, as 0: one that appeared with its first count would be no increase.
	for capacity, outcomes := range map[decision.CapacityType][]decision.Outcome{
		decision.OnDemand: {decision.OnFloor, decision.Overflow},
		decision.Spot:     {decision.InBudget, decision.ByExemption, decision.ByFallback, decision.ByRelief, decision.ByScheduleAnyway},
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
	for _, desc := range []*metrics.Desc{cachesSyncedDesc, approvedDesc, waitingDesc, longestWaitDesc, nodesDesc} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, append([]string{c.profile}, labels...)...)
	}
	gauge(cachesSyncedDesc, float64(count(c.synced())))
	approved, waiting := c.register.numbers()
	gauge(approvedDesc, float64(approved))
	gauge(waitingDesc, float64(waiting))
	longest := time.Duration(0)
	for _, entry := range c.register.all() {
		if entry.forOnDemand {
			longest = max(longest, c.clock.Since(entry.since))
		}
	}
	gauge(longestWaitDesc, longest.Seconds())
	for capacity, n := range c.index.nodesBy() {
		gauge(nodesDesc, float64(n), capacity.Type.String(), capacity.Source.String())
	}
}
