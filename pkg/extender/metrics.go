package extender

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
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
	waitingDesc = metrics.NewDesc(subsystem+"_waiting_for_on_demand_pods",
		"Pods that wait for on-demand room because the policy keeps them off spot.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes by capacity type and by what said so: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// collector collects what is known when metrics are asked for.
type collector struct {
	metrics.BaseStableCollector
	*Extender
}

// RegisterMetrics registers the metrics with the registry of Kubernetes' components. It is to be called once.
func (e *Extender) RegisterMetrics() {
	legacyregistry.MustRegister(placements, invalidAnnotations, requestDuration)
	legacyregistry.CustomMustRegister(&collector{Extender: e})
}

func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{approvedDesc, waitingDesc, nodesDesc} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value int, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, float64(value), append([]string{c.profile}, labels...)...)
	}
	approved, waiting := c.register.numbers()
	gauge(approvedDesc, approved)
	gauge(waitingDesc, waiting)
	for capacity, n := range c.index.nodesBy() {
		gauge(nodesDesc, n, capacity.Type.String(), capacity.Source.String())
	}
}
