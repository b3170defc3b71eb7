package placement

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const subsystem = "spot_aware_scheduler"

// These are the metrics of the scheduler's decisions, served by the scheduler's own /metrics
// endpoint. docs/metrics.md lists them. Their labels are small closed sets. The label profile is
// the schedulerName of a configured profile.
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

	decisionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "decision_duration_seconds",
		Help: "Time of PreFilter of ReplicaSafety: find the pod's owner, count its siblings, plan its placement and choose the nodes to search. " +
			"The label search is few, all, or all-after-few if the pod fit on none of the few nodes.",
		// 1 us to 0.5 s: a warm count takes microseconds. A cold count of 100,000 nodes takes tens
		// of milliseconds.
		Buckets:        metrics.ExponentialBuckets(1e-6, 2, 20),
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "search"})

	waitingDesc = metrics.NewDesc(subsystem+"_waiting_for_on_demand_pods",
		"Pods that wait for on-demand capacity because the policy keeps them off spot.", []string{"profile"}, nil, metrics.ALPHA, "")
	floorsUnmetDesc = metrics.NewDesc(subsystem+"_floors_unmet_workloads",
		"Workloads with fewer replicas on on-demand nodes than their floor. The replicas of all live revisions count, and the floor is at most the number of live pods.", []string{"profile"}, nil, metrics.ALPHA, "")
	deficitDesc = metrics.NewDesc(subsystem+"_floor_deficit_replicas",
		"Replicas missing on on-demand nodes, summed over the workloads with an unmet floor.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestDeficitDesc = metrics.NewDesc(subsystem+"_longest_floor_deficit_seconds",
		"Seconds that the longest unmet floor has been unmet, as observed by this process; 0 if every floor is met.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestWaitDesc = metrics.NewDesc(subsystem+"_longest_wait_for_on_demand_seconds",
		"Longest current wait for on-demand capacity, in seconds since this process first found the pod unschedulable; 0 if no pod waits.", []string{"profile"}, nil, metrics.ALPHA, "")
	boundDesc = metrics.NewDesc(subsystem+"_bound_pods",
		"Bound pods, by capacity type of the node and by their part of the workload: floor or beyond-floor. Pods that may run on spot only are excluded. Pods that may run on on-demand only are excluded from beyond-floor.", []string{"profile", "capacity_type", "part"}, nil, metrics.ALPHA, "")
	cachesSyncedDesc = metrics.NewDesc(subsystem+"_caches_synced",
		"1 if the informer caches that decisions depend on have synced, otherwise 0.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes, by capacity type and by its source: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// Gauges contains the values that are measured when the metrics are scraped.
type Gauges struct {
	CachesSynced       bool
	WaitingForOnDemand int
	// LongestWait is the longest wait of a pod in WaitingForOnDemand; 0 without any.
	LongestWait  time.Duration
	FloorsUnmet  int
	FloorDeficit int
	// LongestDeficit is the time since when the longest unmet floor has been unmet; 0 without any.
	LongestDeficit time.Duration
	Bound          map[BoundPart]int
	Nodes          map[decision.Capacity]int
}

// BoundPart classifies bound pods by capacity type and by whether they are part of the floor. Like
// the floor, it counts all revisions of a workload together. If a floor lacks replicas on on-demand
// nodes, as many pods on spot count as part of it. Pods beyond the floor could run on spot, so pods
// that require on-demand nodes are excluded there.
type BoundPart struct {
	Capacity decision.CapacityType
	Floor    bool
}

// gaugeCollector collects the values of all profiles of this process when the metrics are scraped.
type gaugeCollector struct {
	metrics.BaseStableCollector

	mu       sync.Mutex
	profiles map[string]*profileGauges
}

// profileGauges contains the last values of a profile.
type profileGauges struct {
	read    func() Gauges
	last    Gauges
	expires time.Time // when the values expire
}

// expiryFactor limits the reading of gauges to a hundredth of one CPU, no matter how often the
// metrics are scraped. One reading examines all pods, which takes 70 ms for 25,000 pods. The
// reported values are never older than 100 times the duration of a reading.
const expiryFactor = 100

// current returns the current values, or the previous ones if they have not expired.
func (o *profileGauges) current() Gauges {
	if start := time.Now(); !start.Before(o.expires) {
		o.last = o.read()
		took := time.Since(start)
		o.expires = start.Add(expiryFactor * took)
	}
	return o.last
}

var (
	collector    = &gaugeCollector{profiles: map[string]*profileGauges{}}
	registerOnce sync.Once
)

// RegisterMetrics registers the metrics with the scheduler's registry. A scrape calls read for
// the values of profile, never concurrently.
func RegisterMetrics(profile string, read func() Gauges) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(placements, invalidAnnotations, decisionDuration)
		legacyregistry.CustomMustRegister(collector)
	})
	// Every series exists from the start with the value 0. A series that appears with its first
	// count would not show an increase.
	for capacity, outcomes := range map[decision.CapacityType][]decision.Outcome{
		decision.OnDemand: {decision.OnFloor, decision.Overflow},
		decision.Spot:     {decision.InBudget, decision.ByExemption, decision.ByFallback, decision.ByRolloutRelief, decision.ByScheduleAnyway},
	} {
		for _, outcome := range outcomes {
			placements.WithLabelValues(profile, capacity.String(), string(outcome))
		}
	}
	invalidAnnotations.WithLabelValues(profile)
	for _, scope := range []Scope{FewNodes, AllNodes, AllAfterFew} {
		decisionDuration.WithLabelValues(profile, string(scope))
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	collector.profiles[profile] = &profileGauges{read: read}
}

func (o *gaugeCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		cachesSyncedDesc, waitingDesc, longestWaitDesc, floorsUnmetDesc, deficitDesc, longestDeficitDesc, boundDesc, nodesDesc,
	} {
		ch <- desc
	}
}

func (o *gaugeCollector) CollectWithStability(ch chan<- metrics.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for profile, gauges := range o.profiles {
		values := gauges.current()
		gauge := func(desc *metrics.Desc, value float64, labels ...string) {
			ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, append([]string{profile}, labels...)...)
		}
		synced := 0.0
		if values.CachesSynced {
			synced = 1
		}
		gauge(cachesSyncedDesc, synced)
		gauge(waitingDesc, float64(values.WaitingForOnDemand))
		gauge(longestWaitDesc, values.LongestWait.Seconds())
		gauge(floorsUnmetDesc, float64(values.FloorsUnmet))
		gauge(deficitDesc, float64(values.FloorDeficit))
		gauge(longestDeficitDesc, values.LongestDeficit.Seconds())
		for _, capacity := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
			gauge(boundDesc, float64(values.Bound[BoundPart{capacity, true}]), capacity.String(), "floor")
			gauge(boundDesc, float64(values.Bound[BoundPart{capacity, false}]), capacity.String(), "beyond-floor")
		}
		for capacity, n := range values.Nodes {
			gauge(nodesDesc, float64(n), capacity.Type.String(), capacity.Source.String())
		}
	}
}

// RecordPlacement counts a pod that was bound.
func RecordPlacement(profile string, placed Placement) {
	placements.WithLabelValues(profile, placed.Capacity.String(), string(placed.Outcome)).Inc()
}

// RecordInvalidAnnotations counts the ignored annotations of a pod.
func RecordInvalidAnnotations(profile string, n int) {
	invalidAnnotations.WithLabelValues(profile).Add(float64(n))
}

// RecordDecision records the duration of one decision, by the scope of the search that follows it.
func RecordDecision(profile string, scope Scope, seconds float64) {
	decisionDuration.WithLabelValues(profile, string(scope)).Observe(seconds)
}
