// Package profilemetrics contains the metrics about the pods of a scheduler profile. The scheduler
// and the extender serve them. For pods that keep their scheduler, the controller does.
// docs/metrics.md lists them.
package profilemetrics

import (
	"sync"
	"time"

	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// The label profile is the schedulerName of a configured profile, or spot.KeepScheduler for pods
// that keep their scheduler.
var (
	placements = metrics.NewCounterVec("placements_total",
		"Pods bound, by capacity type of the node and by the reason for the choice: 'floor', 'overflow' (on-demand beyond the "+
			"floor), 'budget', or the exceptions 'exempt', 'fallback', 'rollout-relief' and 'schedule-anyway'.",
		"profile", "capacity_type", "reason")

	invalidAnnotations = metrics.NewCounterVec("invalid_annotations_total",
		"Annotations ignored because their value cannot be parsed, counted once per pod.", "profile")

	waitingDesc = metrics.NewDesc("waiting_for_on_demand_pods",
		"Pods that wait for on-demand capacity because the policy keeps them off spot; 0 on a standby.",
		"profile")
	floorsUnmetDesc = metrics.NewDesc("floors_unmet_workloads",
		"Workloads with fewer replicas on on-demand nodes than their floor, without exempt pods. The replicas of all live revisions count, "+
			"and the floor is at most the number of live pods.", "profile")
	deficitDesc = metrics.NewDesc("floor_deficit_replicas",
		"Replicas missing on on-demand nodes, summed over the workloads with an unmet floor: the deficit.",
		"profile")
	longestDeficitDesc = metrics.NewDesc("longest_floor_deficit_seconds",
		"Seconds that the longest unmet floor has been unmet, as observed by this process; 0 if every "+
			"floor is met.", "profile")
	longestWaitDesc = metrics.NewDesc("longest_wait_for_on_demand_seconds",
		"Longest current wait for on-demand capacity, in seconds since this process first found the pod unschedulable; 0 if no "+
			"pod waits, and on a standby.", "profile")
	cachesSyncedDesc = metrics.NewDesc("caches_synced",
		"1 if the informer caches that decisions depend on have synced, otherwise 0.", "profile")
	nodesDesc = metrics.NewDesc("nodes",
		"Nodes, by capacity type and by its source: 'label' (node.kubernetes.io/capacity), 'alias' (a provisioner's label), 'contradiction' "+
			"(aliases that disagree: counts as spot), 'default' (no label: unlabeledNodes), 'signal' (no label, but a signal that only spot "+
			"nodes get) or 'settling' (no label yet, younger than labelGrace).",
		"profile", "capacity_type", "source")
	boundDesc = metrics.NewDesc("bound_pods",
		"Bound pods, by capacity type of the node and by their part of the workload: 'floor' (on spot: the replicas that the "+
			"floor lacks on on-demand) or 'beyond-floor'. "+
			"Pods that may run on spot only are excluded. Pods that may run on on-demand only are excluded from beyond-floor.",
		"profile", "capacity_type", "part")
)

// collector collects the gauges of all profiles of this process when the metrics are scraped.
type collector struct {
	basemetrics.BaseStableCollector

	withoutCaches bool // omit caches_synced

	mu       sync.Mutex
	profiles map[string]func() Gauges
}

var (
	gauges       = &collector{profiles: map[string]func() Gauges{}}
	registerOnce sync.Once
)

// Register registers the metrics of a profile with the registry of the Kubernetes components.
//
// Every series of a counter exists from the start with the value 0. A series that appears with its
// first count would not show an increase.
func Register(c *Cluster) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(placements, invalidAnnotations)
		legacyregistry.CustomMustRegister(gauges)
	})
	gauges.mu.Lock()
	gauges.withoutCaches = c.Synced == nil
	read := limited(c.Read)
	gauges.profiles[c.Profile] = func() Gauges {
		values := read()
		c.update(&values)
		return values
	}
	gauges.mu.Unlock()
	for capacity, outcomes := range map[decision.CapacityType][]decision.Outcome{
		decision.OnDemand: {decision.OnFloor, decision.Overflow},
		decision.Spot:     {decision.InBudget, decision.ByExemption, decision.ByFallback, decision.ByRolloutRelief, decision.ByScheduleAnyway},
	} {
		for _, outcome := range outcomes {
			placements.WithLabelValues(c.Profile, capacity.String(), string(outcome))
		}
	}
	invalidAnnotations.WithLabelValues(c.Profile)
}

// RecordPlacement counts a pod that was bound.
func RecordPlacement(profile string, capacity decision.CapacityType, outcome decision.Outcome) {
	placements.WithLabelValues(profile, capacity.String(), string(outcome)).Inc()
}

// RecordInvalidAnnotations counts the ignored annotations of a pod.
func RecordInvalidAnnotations(profile string, n int) {
	invalidAnnotations.WithLabelValues(profile).Add(float64(n))
}

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
	Nodes          map[decision.Capacity]int
	Bound          map[BoundPart]int
}

// BoundPart classifies bound pods by capacity type and by whether they are part of the floor. Like
// the floor, it counts all revisions of a workload together. If a floor lacks replicas on on-demand
// nodes, as many pods on spot count as part of it. Pods beyond the floor could run on spot, so pods
// that require on-demand nodes are excluded there.
type BoundPart struct {
	Capacity decision.CapacityType
	Floor    bool
}

func (c *collector) DescribeWithStability(ch chan<- *basemetrics.Desc) {
	if !c.withoutCaches {
		ch <- cachesSyncedDesc
	}
	for _, desc := range []*basemetrics.Desc{
		waitingDesc, longestWaitDesc, floorsUnmetDesc, deficitDesc, longestDeficitDesc, nodesDesc, boundDesc,
	} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- basemetrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for profile, read := range c.profiles {
		values := read()
		if !c.withoutCaches {
			synced := 0.0
			if values.CachesSynced {
				synced = 1
			}
			metrics.SendGauge(ch, cachesSyncedDesc, synced, profile)
		}
		values.collect(ch, profile)
	}
}

// collect sends the values of a profile except CachesSynced to ch.
func (g *Gauges) collect(ch chan<- basemetrics.Metric, profile string) {
	metrics.SendGauge(ch, waitingDesc, float64(g.WaitingForOnDemand), profile)
	metrics.SendGauge(ch, longestWaitDesc, g.LongestWait.Seconds(), profile)
	metrics.SendGauge(ch, floorsUnmetDesc, float64(g.FloorsUnmet), profile)
	metrics.SendGauge(ch, deficitDesc, float64(g.FloorDeficit), profile)
	metrics.SendGauge(ch, longestDeficitDesc, g.LongestDeficit.Seconds(), profile)
	for capacity, n := range g.Nodes {
		metrics.SendGauge(ch, nodesDesc, float64(n), profile, capacity.Type.String(), capacity.Source.String())
	}
	for _, capacity := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
		metrics.SendGauge(ch, boundDesc, float64(g.Bound[BoundPart{capacity, true}]), profile, capacity.String(), "floor")
		metrics.SendGauge(ch, boundDesc, float64(g.Bound[BoundPart{capacity, false}]), profile, capacity.String(), "beyond-floor")
	}
}

// expiryFactor limits Cluster.Read to a hundredth of one CPU, no matter how often the metrics are
// scraped. One reading examines all pods, which takes 70 ms for 25,000 pods. The values that it
// reports are never older than 100 times the duration of a reading.
const expiryFactor = 100

// limited returns a function that returns the current values, or the previous ones if they have not
// expired.
func limited[T any](read func() T) func() T {
	var last T
	var expires time.Time
	return func() T {
		if start := time.Now(); !start.Before(expires) {
			last = read()
			expires = start.Add(expiryFactor * time.Since(start))
		}
		return last
	}
}
