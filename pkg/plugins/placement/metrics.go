package placement

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const subsystem = "spot_aware_scheduler"

// The metrics of the scheduler's decisions, on the scheduler's own /metrics. docs/metrics.md lists them. Their labels are small closed
// sets; profile is the schedulerName of a configured profile.
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

	decisionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "decision_duration_seconds",
		Help: "Time to find a pod's owner, count its siblings, plan its placement and choose the nodes to look at (PreFilter of ReplicaSafety), by how " +
			"many these are: few, all, or all-after-few because none of the few took the pod.",
		// 1 us to 0.5 s: a warm count takes microseconds, a cold one over 100,000 nodes tens of milliseconds.
		Buckets:        metrics.ExponentialBuckets(1e-6, 2, 20),
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "search"})

	waitingDesc = metrics.NewDesc(subsystem+"_waiting_for_on_demand_pods",
		"Pods that wait for on-demand room because the policy keeps them off spot.", []string{"profile"}, nil, metrics.ALPHA, "")
	floorsUnmetDesc = metrics.NewDesc(subsystem+"_floors_unmet_workloads",
		"Workloads with fewer replicas on on-demand nodes than their floor, counted over all live revisions and at most their live pods.", []string{"profile"}, nil, metrics.ALPHA, "")
	deficitDesc = metrics.NewDesc(subsystem+"_floor_deficit_replicas",
		"Replicas that these workloads lack on on-demand nodes.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestDeficitDesc = metrics.NewDesc(subsystem+"_longest_floor_deficit_seconds",
		"How long the one of these workloads has lacked replicas that has lacked some the longest, at every look of this process since it was first seen; 0 without any.", []string{"profile"}, nil, metrics.ALPHA, "")
	longestWaitDesc = metrics.NewDesc(subsystem+"_longest_wait_for_on_demand_seconds",
		"How long the one of these pods has waited that has waited the longest, since it was first found unschedulable by this process; 0 without any.", []string{"profile"}, nil, metrics.ALPHA, "")
	boundDesc = metrics.NewDesc(subsystem+"_bound_pods",
		"Pods that are bound, by capacity type of their node and by the part of their workload that they make up: floor or beyond-floor. Those that may run on spot only are left out, and of those beyond their floor the ones that may run on on-demand only.", []string{"profile", "capacity_type", "part"}, nil, metrics.ALPHA, "")
	cachesSyncedDesc = metrics.NewDesc(subsystem+"_caches_synced",
		"1 when the informer caches that decisions are made from have been filled, 0 before.", []string{"profile"}, nil, metrics.ALPHA, "")
	nodesDesc = metrics.NewDesc(subsystem+"_nodes",
		"Nodes by capacity type and by what said so: label, alias, contradiction (aliases that disagree), default (no label) or settling (no label yet).", []string{"profile", "capacity_type", "source"}, nil, metrics.ALPHA, "")
)

// Observed is what is measured when metrics are asked for.
type Observed struct {
	CachesSynced       bool
	WaitingForOnDemand int
	// LongestWait is that of those; 0 without any.
	LongestWait  time.Duration
	FloorsUnmet  int
	FloorDeficit int
	// LongestDeficit is how long the floor of one of these workloads has not been met, the longest; 0 without any.
	LongestDeficit time.Duration
	Bound          map[Standing]int
	Nodes          map[decision.Capacity]int
}

// Standing is where a bound pod stands, and whether it makes up part of its workload's floor: as the floor counts for all of a workload's
// pods together, so does this. Of those on spot the ones that a floor lacks on on-demand are part of it. What is beyond the floor could be on
// spot: pods that admit only on-demand are left out there.
type Standing struct {
	Capacity decision.CapacityType
	Floor    bool
}

// observer collects from the profiles of this process when metrics are asked for.
type observer struct {
	metrics.BaseStableCollector

	mu       sync.Mutex
	profiles map[string]*observed
}

// observed is what was last seen of a profile.
type observed struct {
	observe func() Observed
	last    Observed
	again   time.Time // when to look again
}

// observedShare keeps looking to a hundredth of one CPU, however often metrics are asked for: a look goes over all pods, of which 25,000
// take 70 ms. What is told is at most as old as a hundred looks take.
const observedShare = 100

// now returns what is to be seen, or was seen not long ago.
func (o *observed) now() Observed {
	if start := time.Now(); !start.Before(o.again) {
		o.last = o.observe()
		took := time.Since(start)
		o.again = start.Add(observedShare * took)
	}
	return o.last
}

var (
	observers    = &observer{profiles: map[string]*observed{}}
	registerOnce sync.Once
)

// RegisterMetrics registers the metrics with the scheduler's registry, and observe to be asked for profile's state when they are, never twice at
// once.
func RegisterMetrics(profile string, observe func() Observed) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(placements, invalidAnnotations, decisionDuration)
		legacyregistry.CustomMustRegister(observers)
	})
	// Every series is there from the start, as 0: one that appeared with its first count would be no increase.
	for capacity, outcomes := range map[decision.CapacityType][]decision.Outcome{
		decision.OnDemand: {decision.OnFloor, decision.Overflow},
		decision.Spot:     {decision.InBudget, decision.ByExemption, decision.ByFallback, decision.ByRelief, decision.ByScheduleAnyway},
	} {
		for _, outcome := range outcomes {
			placements.WithLabelValues(profile, capacity.String(), string(outcome))
		}
	}
	invalidAnnotations.WithLabelValues(profile)
	for _, scope := range []Scope{FewNodes, AllNodes, AllAfterFew} {
		decisionDuration.WithLabelValues(profile, string(scope))
	}
	observers.mu.Lock()
	defer observers.mu.Unlock()
	observers.profiles[profile] = &observed{observe: observe}
}

func (o *observer) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		cachesSyncedDesc, waitingDesc, longestWaitDesc, floorsUnmetDesc, deficitDesc, longestDeficitDesc, boundDesc, nodesDesc,
	} {
		ch <- desc
	}
}

func (o *observer) CollectWithStability(ch chan<- metrics.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for profile, observed := range o.profiles {
		seen := observed.now()
		gauge := func(desc *metrics.Desc, value float64, labels ...string) {
			ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, append([]string{profile}, labels...)...)
		}
		synced := 0.0
		if seen.CachesSynced {
			synced = 1
		}
		gauge(cachesSyncedDesc, synced)
		gauge(waitingDesc, float64(seen.WaitingForOnDemand))
		gauge(longestWaitDesc, seen.LongestWait.Seconds())
		gauge(floorsUnmetDesc, float64(seen.FloorsUnmet))
		gauge(deficitDesc, float64(seen.FloorDeficit))
		gauge(longestDeficitDesc, seen.LongestDeficit.Seconds())
		for _, capacity := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
			gauge(boundDesc, float64(seen.Bound[Standing{capacity, true}]), capacity.String(), "floor")
			gauge(boundDesc, float64(seen.Bound[Standing{capacity, false}]), capacity.String(), "beyond-floor")
		}
		for capacity, n := range seen.Nodes {
			gauge(nodesDesc, float64(n), capacity.Type.String(), capacity.Source.String())
		}
	}
}

// RecordPlacement counts a pod that was bound.
func RecordPlacement(profile string, placed Placement) {
	placements.WithLabelValues(profile, placed.Capacity.String(), string(placed.Outcome)).Inc()
}

// RecordInvalidAnnotations counts the annotations of a pod that were ignored.
func RecordInvalidAnnotations(profile string, n int) {
	invalidAnnotations.WithLabelValues(profile).Add(float64(n))
}

// RecordDecision measures one decision, after which so many nodes are looked at.
func RecordDecision(profile string, scope Scope, seconds float64) {
	decisionDuration.WithLabelValues(profile, string(scope)).Observe(seconds)
}
