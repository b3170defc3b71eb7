package extender

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
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
	floorsUnmetDesc = metrics.NewDesc(subsystem+"_floors_unmet_workloads",
		"Workloads with fewer replicas on on-demand nodes than their floor, counted over all live revisions and at most their live pods.", []string{"profile"}, nil, metrics.ALPHA, "")
	deficitDesc = metrics.NewDesc(subsystem+"_floor_deficit_replicas",
		"Replicas that these workloads lack on on-demand nodes.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestDeficitDesc = metrics.NewDesc(subsystem+"_longest_floor_deficit_seconds",
		"Longest time that the floor of one of these workloads has not been met, at every look of this process since it was first seen; 0 without any.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes by capacity type and by what said so: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// collector collects what is known when metrics are asked for.
type collector struct {
	metrics.BaseStableCollector
	*Extender
	synced func() bool
	floors floors
}

// floors is what was last seen of the floors of workloads.
type floors struct {
	mu       sync.Mutex
	deficits kube.Deficits
	again    time.Time // when to look again

	unmet, lacking int
	longest        time.Duration
}

// floorsShare keeps looking to a hundredth of one CPU, however often metrics are asked for: a look goes over all pods.
const floorsShare = 100

// look returns how many floors are not met, how many replicas they lack, and for how long the longest has not been met.
func (c *collector) look() (unmet, lacking int, longest time.Duration) {
	f := &c.floors
	f.mu.Lock()
	defer f.mu.Unlock()
	start := time.Now()
	if start.Before(f.again) {
		return f.unmet, f.lacking, f.longest
	}
	if pods, err := c.pods.List(labels.Everything()); err == nil {
		f.unmet, f.lacking, f.longest = f.deficits.Update(c.owners.Standings(pods, c.profile, c.index.capacityOf), c.clock.Now())
		f.again = start.Add(floorsShare * time.Since(start))
	}
	return f.unmet, f.lacking, f.longest
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
	unmet, lacking, longestUnmet := c.look()
	gauge(floorsUnmetDesc, float64(unmet))
	gauge(deficitDesc, float64(lacking))
	gauge(longestDeficitDesc, longestUnmet.Seconds())
	for capacity, n := range c.index.nodesBy() {
		gauge(nodesDesc, float64(n), capacity.Type.String(), capacity.Source.String())
	}
}
