package micro

import (
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// eventCount is an alternative way to count pods: from pod and node events, and from Reserve for
// pods whose events are still pending. It is a prototype to measure the cost. It ignores labels,
// signals and terminating pods, and each would make it more expensive.
type eventCount struct {
	mu        sync.Mutex // events arrive in goroutines of the informers
	nodes     map[string]*eventNode
	revisions map[types.UID]*totals
}

type eventNode struct {
	spot bool
	zone string
	pool decision.Pool
	pods map[types.UID]types.UID // revisions of the counted pods: a pod is in an event after Reserve has counted it
}

type totals struct {
	spot, onDemand int
	nodes, zones   map[string]int
	pools          map[decision.Pool]int
}

func newEventCount() *eventCount {
	return &eventCount{nodes: map[string]*eventNode{}, revisions: map[types.UID]*totals{}}
}

// node handles the event of a node. Its pods are counted under its current properties.
func (c *eventCount) node(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.nodes[node.Name]
	after := &eventNode{spot: isSpot(node), zone: node.Labels[v1.LabelTopologyZone], pods: map[types.UID]types.UID{},
		pool: decision.Pool{InstanceType: node.Labels[v1.LabelInstanceTypeStable], Zone: node.Labels[v1.LabelTopologyZone]}}
	c.nodes[node.Name] = after
	if before != nil {
		for pod, revision := range before.pods {
			c.add(node.Name, before, revision, -1)
			c.add(node.Name, after, revision, 1)
			after.pods[pod] = revision
		}
	}
}

// bound handles Reserve, and the event of a new or changed pod. gone handles Unreserve, and the
// event of a deleted pod.
func (c *eventCount) bound(pod *v1.Pod, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, owner := c.nodes[name], metav1.GetControllerOfNoCopy(pod)
	if _, counted := node.pods[pod.UID]; !counted && owner != nil {
		node.pods[pod.UID] = owner.UID
		c.add(name, node, owner.UID, 1)
	}
}

func (c *eventCount) gone(pod *v1.Pod, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node := c.nodes[name]
	if revision, counted := node.pods[pod.UID]; counted {
		delete(node.pods, pod.UID)
		c.add(name, node, revision, -1)
	}
}

func (c *eventCount) add(name string, node *eventNode, revision types.UID, delta int) {
	r := c.revisions[revision]
	if r == nil {
		r = &totals{nodes: map[string]int{}, zones: map[string]int{}, pools: map[decision.Pool]int{}}
		c.revisions[revision] = r
	}
	r.nodes[name] += delta
	if r.nodes[name] == 0 {
		delete(r.nodes, name)
	}
	r.zones[node.zone] += delta
	if node.spot {
		r.spot += delta
		r.pools[node.pool] += delta
	} else {
		r.onDemand += delta
	}
}

// all counts a whole cluster, like the first lists of the informers.
func (c *eventCount) all(nodes []fwk.NodeInfo) {
	for _, info := range nodes {
		c.node(info.Node())
		for _, pod := range info.GetPods() {
			c.bound(pod.GetPod(), info.Node().Name)
		}
	}
}

// waysToCount returns the cost of each way of counting by itself. Counting from events costs time
// for each pod (Reserve, the event of its binding, two of its status, its deletion), and for all
// pods at the start. Counting by NodeInfo generation costs at least a comparison per node in every
// cycle.
func waysToCount(t testing.TB, c *cluster) []point {
	t.Helper()
	var events *eventCount
	count := func() {
		events = newEventCount()
		events.all(c.infos)
		if web := events.revisions[metav1.GetControllerOf(c.web).UID]; web.spot+web.onDemand != replicas-1 {
			t.Errorf("counted %d pods on spot and %d on on-demand, want a total of %d", web.spot, web.onDemand, replicas-1)
		}
	}
	generations := make([]int64, len(c.infos))
	scan := func() {
		for i, info := range c.infos {
			if g := info.GetGeneration(); generations[i] != g {
				generations[i] = g
			}
		}
	}
	return []point{
		{name: "Count/events", start: count, nodes: c.infos, perNode: func(info fwk.NodeInfo) {
			name := info.Node().Name
			for range 4 {
				events.bound(c.web, name)
			}
			events.gone(c.web, name)
		}},
		{name: "Count/events/first", work: count},
		{name: "Count/scan", start: scan, before: c.change, work: scan},
	}
}

// bytesPerPodFromEvents is bytesPerPod for counting from events.
func bytesPerPodFromEvents(_ testing.TB, c *cluster) float64 {
	events := newEventCount()
	return heapGrowth(func() { events.all(c.infos) }, events) / float64(c.pods())
}
