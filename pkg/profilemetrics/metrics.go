// Package profilemetrics contains the metrics about the pods of a scheduler profile. The scheduler
// and the extender serve them. For pods that keep their scheduler, the controller does.
// docs/metrics.md lists them.
package profilemetrics

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
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
		gauges.withoutCaches = c.Synced == nil // before the registry reads the descriptions
		legacyregistry.MustRegister(placements, invalidAnnotations)
		legacyregistry.CustomMustRegister(gauges)
	})
	gauges.mu.Lock()
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

// Cluster reads the gauges of a profile from informer caches.
type Cluster struct {
	// Profile is the value of the label.
	Profile string
	Nodes   corelisters.NodeLister
	Reader  *node.Reader
	Pods    corelisters.PodLister
	Owners  *workload.Owners
	// Includes selects the pods to count.
	Includes  func(*v1.Pod) bool
	VolumesOf func(*v1.Pod) []*v1.PersistentVolume
	Pools     *workload.Pools // nil: none
	// Waiting returns how many pods wait for on-demand, and the longest wait.
	Waiting func() (pods int, longest time.Duration)
	// Synced reports whether the caches are full; nil in a program that has its own caches_synced.
	Synced func() bool
	Clock  clock.PassiveClock

	deficits workload.Deficits
}

// Read returns the current values. It must not be called concurrently.
func (c *Cluster) Read() Gauges {
	now, values := c.Clock.Now(), Gauges{Nodes: map[decision.Capacity]int{}, Bound: map[BoundPart]int{}}
	c.update(&values)
	nodes, _ := c.Nodes.List(labels.Everything()) // a cache lister returns no error
	evidence := workload.NewNodeEvidence(c.Reader.Policy)
	evidence.Pools = c.Pools
	for _, node := range nodes {
		capacity := c.Reader.Capacity(node, now)
		values.Nodes[capacity]++
		evidence.Set(node, capacity, now)
	}
	pods, _ := c.Pods.List(labels.Everything())
	statuses := c.Owners.FloorStatuses(pods, c.Includes, evidence, c.VolumesOf)
	values.FloorsUnmet, values.FloorDeficit, values.LongestDeficit = c.deficits.Update(statuses, now)
	for _, s := range statuses {
		if s.OnDemand == 0 && s.Spot == s.Exempt && s.FloorDeficit == 0 {
			continue // without a floor or a choice of capacity type
		}
		values.Bound[BoundPart{Capacity: decision.OnDemand, Floor: true}] += s.FloorOnDemand
		values.Bound[BoundPart{Capacity: decision.OnDemand}] += min(s.Surplus, s.OnDemand-s.OnlyOnDemand)
		values.Bound[BoundPart{Capacity: decision.Spot, Floor: true}] += s.FloorOnSpot
		values.Bound[BoundPart{Capacity: decision.Spot}] += s.Spot - s.FloorOnSpot - s.Exempt
	}
	return values
}

// update sets the values that do not depend on bound pods.
func (c *Cluster) update(values *Gauges) {
	values.CachesSynced = c.Synced != nil && c.Synced()
	values.WaitingForOnDemand, values.LongestWait = c.Waiting()
}
