package profilemetrics

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

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
