package placement

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Counter knows where the pods of every revision stand, and what a decision needs to know of every node. It reads the scheduler's
// snapshot, which holds assumed pods already, and counts again only the nodes whose generation has changed.
//
// Update must not run at the same time as anything else; between two Updates everything may be read concurrently.
type Counter struct {
	reader *kube.NodeReader

	nodes     map[string]*node
	order     []*node // as in the last snapshot
	revisions map[types.UID]*Revision
	labeled   int // nodes whose capacity type a label decides

	interruptions map[decision.Pool][]time.Time
}

// Revision counts the live pods of one revision. A nil *Revision has none.
type Revision struct {
	placed decision.Placed
	nodes  map[string]int
	zones  map[string]int
	pools  map[decision.Pool]int // on spot nodes only: on-demand nodes are not reclaimed with a pool
}

// node is what was counted of one NodeInfo.
type node struct {
	name       string
	info       fwk.NodeInfo
	generation int64
	facts      decision.Node
	zone       string
	until      int64 // when facts change although the node does not, in Unix nanoseconds; math.MaxInt64 for never
	pods       []podsOf
	counted    bool
	seen       bool // in the Update that is running
}

type podsOf struct {
	revision types.UID
	n        int
}

// NewCounter returns an empty Counter that reads nodes with reader.
func NewCounter(reader *kube.NodeReader) *Counter {
	return &Counter{
		reader:        reader,
		nodes:         map[string]*node{},
		revisions:     map[types.UID]*Revision{},
		interruptions: map[decision.Pool][]time.Time{},
	}
}

// Update brings the count up to the snapshot that snapshot lists: all its nodes, as they are at now.
func (c *Counter) Update(snapshot []fwk.NodeInfo, now time.Time) {
	labeled := c.labeled > 0
	c.scan(snapshot, now, labeled, false)
	if (c.labeled > 0) != labeled {
		// Whether unlabeled nodes are settling depends on the others: read all again.
		c.scan(snapshot, now, !labeled, true)
	}
}

func (c *Counter) scan(snapshot []fwk.NodeInfo, now time.Time, othersLabeled, all bool) {
	nanos := now.UnixNano()
	moved := len(snapshot) != len(c.order)
	for i, info := range snapshot {
		var n *node
		if i < len(c.order) && c.order[i].info == info {
			n = c.order[i]
		} else {
			moved = true
			n = c.nodes[info.Node().Name]
			if n == nil {
				n = &node{name: info.Node().Name}
				c.nodes[n.name] = n
			}
		}
		// Generations are compared for equality only: a restored snapshot goes back.
		if !all && n.info == info && n.generation == info.GetGeneration() && nanos < n.until {
			continue
		}
		n.info = info
		c.recount(n, now, othersLabeled)
	}
	if moved {
		c.reorder(snapshot, now)
	}
}

// reorder takes over the order of snapshot and drops the nodes that are not in it.
func (c *Counter) reorder(snapshot []fwk.NodeInfo, now time.Time) {
	c.order = slices.Grow(c.order[:0], len(snapshot))
	for _, info := range snapshot {
		n := c.nodes[info.Node().Name]
		n.seen = true
		c.order = append(c.order, n)
	}
	for name, n := range c.nodes {
		if n.seen {
			n.seen = false
			continue
		}
		if n.facts.Capacity.Type == decision.Spot && n.facts.Signal < decision.Drain && len(n.pods) > 0 {
			c.interrupted(n.facts.Pool, now)
		}
		c.forget(n)
		delete(c.nodes, name)
	}
}

// recount reads n and its pods again.
func (c *Counter) recount(n *node, now time.Time, othersLabeled bool) {
	c.forget(n)
	object := n.info.Node()
	before := n.facts.Signal
	facts, until := c.reader.Read(object, othersLabeled, now)
	n.facts, n.zone, n.generation, n.until = facts, object.Labels[v1.LabelTopologyZone], n.info.GetGeneration(), math.MaxInt64
	if !until.IsZero() {
		n.until = until.UnixNano()
	}
	n.pods = tally(n.pods[:0], n.info.GetPods())
	c.add(n, 1)
	if facts.Signal == decision.Reclaim && before != decision.Reclaim && facts.Capacity.Type == decision.Spot && len(n.pods) > 0 {
		c.interrupted(facts.Pool, now)
	}
}

// tally counts the pods of a node by revision. Those without siblings (no controller) and those without a policy are left out.
func tally(into []podsOf, pods []fwk.PodInfo) []podsOf {
	for _, info := range pods {
		pod := info.GetPod()
		if metav1.GetControllerOfNoCopy(pod) == nil || !kube.Live(pod) || !kube.HasOpinion(pod) {
			continue
		}
		revision := kube.RevisionOf(pod)
		if i := slices.IndexFunc(into, func(p podsOf) bool { return p.revision == revision }); i >= 0 {
			into[i].n++
		} else {
			into = append(into, podsOf{revision, 1})
		}
	}
	return into
}

// forget takes back what n was counted for.
func (c *Counter) forget(n *node) {
	if n.counted {
		c.add(n, -1)
	}
}

// add counts n and its pods, or with sign -1 takes them back.
func (c *Counter) add(n *node, sign int) {
	n.counted = sign > 0
	if n.facts.Capacity.Labeled() {
		c.labeled += sign
	}
	for _, p := range n.pods {
		r := c.revisions[p.revision]
		if r == nil {
			r = &Revision{nodes: map[string]int{}, zones: map[string]int{}, pools: map[decision.Pool]int{}}
			c.revisions[p.revision] = r
		}
		delta := sign * p.n
		addTo(r.nodes, n.name, delta)
		addTo(r.zones, n.zone, delta)
		if n.facts.Capacity.Type == decision.Spot {
			r.placed.Spot += delta
			addTo(r.pools, n.facts.Pool, delta)
		} else {
			r.placed.OnDemand += delta
		}
		if len(r.nodes) == 0 {
			delete(c.revisions, p.revision)
		}
	}
}

func addTo[K comparable](counts map[K]int, key K, delta int) {
	if n := counts[key] + delta; n != 0 {
		counts[key] = n
	} else {
		delete(counts, key)
	}
}

// Node returns what a decision needs to know of the node of that name; false if the last snapshot did not have it.
func (c *Counter) Node(name string) (decision.Node, bool) {
	n, ok := c.nodes[name]
	if !ok {
		return decision.Node{}, false
	}
	return n.facts, true
}

// Placed returns where the pods of a revision stand.
func (c *Counter) Placed(revision types.UID) decision.Placed {
	if r := c.revisions[revision]; r != nil {
		return r.placed
	}
	return decision.Placed{}
}

// siblings counts a revision's pods around a node.
func (r *Revision) siblings(n *node) decision.Siblings {
	if r == nil {
		return decision.Siblings{}
	}
	around := decision.Siblings{OnNode: r.nodes[n.name], InZone: r.zones[n.zone]}
	if n.facts.Capacity.Type == decision.Spot {
		around.InPool = r.pools[n.facts.Pool]
	}
	return around
}

// NextSettled returns when the next of the nodes that wait for their capacity label stops doing so; the zero time if none does.
func (c *Counter) NextSettled() time.Time {
	next := int64(math.MaxInt64)
	for _, n := range c.order {
		if n.facts.Capacity.Source == decision.Settling {
			next = min(next, n.until)
		}
	}
	if next == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, next)
}

// maxInterruptions bounds what is remembered of one pool. Older ones would add next to nothing to its risk.
const maxInterruptions = 32

func (c *Counter) interrupted(pool decision.Pool, at time.Time) {
	if pool == (decision.Pool{}) {
		return
	}
	times := append(c.interruptions[pool], at)
	c.interruptions[pool] = times[max(0, len(times)-maxInterruptions):]
}

// Interruptions returns the pools that lost spot nodes since the process started, with how long ago each was seen: a node that, with
// pods on it, got a reclaim signal or vanished without a word.
func (c *Counter) Interruptions(now time.Time) map[decision.Pool][]time.Duration {
	if len(c.interruptions) == 0 {
		return nil
	}
	ages := make(map[decision.Pool][]time.Duration, len(c.interruptions))
	for pool, times := range c.interruptions {
		for _, at := range times {
			ages[pool] = append(ages[pool], now.Sub(at))
		}
	}
	return ages
}
