package placement

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Counter knows where the pods of every revision stand, and what a decision needs to know of every node. It reads the scheduler's
// snapshot, which holds assumed pods already, and counts again only the nodes whose generation has changed.
//
// Update, UpdateRisks and State.Search must not run at the same time as anything else; between them everything may be read concurrently.
type Counter struct {
	reader *kube.NodeReader
	labels *kube.LabelHistory

	nodes     map[string]*node
	order     []counted // as in the last snapshot
	revisions map[kube.OwnerKey]*revision
	labeled   bool               // nodes were read as beside labelled ones
	special   int                // nodes that are spot, or have a signal
	settling  map[*node]struct{} // nodes that wait for their capacity label
	next      int64              // the earliest until of all nodes, or earlier

	// Pools and zones are kept for good: there are no more than the cloud has.
	pools  []*pool // by their index
	poolOf map[decision.SpreadPool]*pool
	zones  map[string]int // name to index
	turn   int            // of the pools: see orderedPools

	notes    kube.NodeEvents
	fresh    map[*pool][]time.Time     // losses that UpdateRisks has not seen yet
	losses   map[*pool]decision.Losses // of pools that lost nodes within ten half-lives
	withRisk int                       // how many of pools have their known risk
	risksAt  time.Time                 // when the risks of all pools with losses were worked out
}

// revision counts the live pods of one revision by pool; those on a node are in node.pods. A nil *revision has none.
type revision struct {
	key   kube.OwnerKey
	pools []podsIn
}

type podsIn struct {
	pool *pool
	n    int
}

// pool is all nodes of one decision.SpreadPool.
type pool struct {
	capacity decision.CapacityType
	pool     decision.Pool
	index    int
	zone     int
	nodes    []*node
	next     int // in nodes: where the next search begins
	// The pool's risk before it lost any node, and with its losses; both are 0 for on-demand nodes.
	known, risk float64
}

// node is what was counted of one node.
type node struct {
	facts      decision.Node
	free       free
	pods       []podsOf
	pool       *pool // nil: not counted
	place      int   // in pool.nodes
	name       string
	info       fwk.NodeInfo
	generation int64
	until      int64 // when facts change although the node does not, in Unix nanoseconds; math.MaxInt64 for never
	seen       bool  // in the Update that is running
	past       past
}

// free is what a node has left. A search asks it of a hundred nodes that it has not touched for long: each pointer on the way would cost
// more than all the rest.
type free struct {
	milliCPU, memory int64
	pods             int
	guarded          bool // cordoned or tainted: not for every pod
}

func freeOf(info fwk.NodeInfo) free {
	has, used, node := info.GetAllocatable(), info.GetRequested(), info.Node()
	return free{
		milliCPU: has.GetMilliCPU() - used.GetMilliCPU(),
		memory:   has.GetMemory() - used.GetMemory(),
		pods:     has.GetAllowedPodNumber() - len(info.GetPods()),
		guarded:  node.Spec.Unschedulable || len(node.Spec.Taints) > 0,
	}
}

// counted is a node of the last snapshot, and its generation then. Update compares that for every node of the cluster: side by side in
// memory, because following a pointer for each would take most of the time.
type counted struct {
	generation int64
	node       *node
}

type podsOf struct {
	revision *revision
	n        int
}

// NewCounter returns an empty Counter that reads nodes with reader. It also adds what it reads to labels.
func NewCounter(reader *kube.NodeReader, labels *kube.LabelHistory) *Counter {
	return &Counter{
		reader:    reader,
		labels:    labels,
		nodes:     map[string]*node{},
		settling:  map[*node]struct{}{},
		revisions: map[kube.OwnerKey]*revision{},
		poolOf:    map[decision.SpreadPool]*pool{},
		zones:     map[string]int{},
		fresh:     map[*pool][]time.Time{},
		losses:    map[*pool]decision.Losses{},
	}
}

// Update brings the count up to the snapshot that snapshot lists: all its nodes, as they are at now.
func (c *Counter) Update(snapshot []fwk.NodeInfo, now time.Time) {
	c.readNotes(now)
	seen := c.labels.Seen() // once: an informer may set it at any time
	first := !c.labeled && seen
	c.labeled = seen
	c.scan(snapshot, now, first)
	if !c.labeled && c.labels.Seen() {
		// Unlabeled nodes settle from the first labelled one on: read all again.
		c.labeled = true
		c.scan(snapshot, now, true)
	}
}

func (c *Counter) scan(snapshot []fwk.NodeInfo, now time.Time, all bool) {
	nanos := now.UnixNano()
	due := nanos >= c.next
	moved := len(snapshot) != len(c.order)
	for i, info := range snapshot {
		// A generation is given once, to one state of one node (nextGeneration in pkg/scheduler/framework/types.go of Kubernetes). They are
		// compared for equality only: a restored snapshot goes back.
		if !all && !due && i < len(c.order) && c.order[i].generation == info.GetGeneration() {
			continue
		}
		name := info.Node().Name
		n := c.nodes[name]
		if n == nil {
			n = &node{name: name}
			c.nodes[name] = n
		}
		if all || n.generation != info.GetGeneration() || nanos >= n.until {
			n.info = info
			c.recount(n, now)
		}
		if i < len(c.order) && c.order[i].node == n {
			c.order[i].generation = n.generation
		} else {
			moved = true
		}
	}
	if moved {
		c.reorder(snapshot, now)
	}
	if due {
		c.next = math.MaxInt64
		for _, n := range c.nodes {
			c.next = min(c.next, n.until)
		}
	}
}

// reorder takes over the order of snapshot and drops the nodes that are not in it.
func (c *Counter) reorder(snapshot []fwk.NodeInfo, now time.Time) {
	c.order = slices.Grow(c.order[:0], len(snapshot))
	for _, info := range snapshot {
		n := c.nodes[info.Node().Name]
		n.seen = true
		c.order = append(c.order, counted{n.generation, n})
	}
	clear(c.order[len(c.order):cap(c.order)])
	for name, n := range c.nodes {
		if n.seen {
			n.seen = false
			continue
		}
		c.vanished(n, now)
		c.forget(n)
		delete(c.nodes, name)
	}
}

// recount reads n and its pods again.
func (c *Counter) recount(n *node, now time.Time) {
	object := n.info.Node()
	if n.past.uid != object.UID {
		if n.pool != nil { // another node has taken its name since
			c.vanished(n, now)
		}
		n.past = past{uid: object.UID}
	}
	c.forget(n)
	facts, until := c.reader.Read(object, c.labeled, now)
	c.labels.Note(facts.Capacity)
	n.facts, n.free, n.generation, n.until = facts, freeOf(n.info), n.info.GetGeneration(), math.MaxInt64
	if !until.IsZero() {
		n.until = until.UnixNano()
		c.next = min(c.next, n.until)
	}
	c.count(n, facts.SpreadPool(object.Labels[v1.LabelTopologyZone]))
	c.checkLoss(n, now)
}

// count counts n, which is not counted, in its pool, and its pods in their revisions.
func (c *Counter) count(n *node, key decision.SpreadPool) {
	p := c.pool(key)
	n.pool, n.place = p, len(p.nodes)
	p.nodes = append(p.nodes, n)
	c.tell(n, 1)
	n.pods = c.tally(n.pods[:0], n.info.GetPods())
	for _, pods := range n.pods {
		pods.revision.add(p, pods.n)
	}
}

// forget takes back what n was counted for, if it was.
func (c *Counter) forget(n *node) {
	p := n.pool
	if p == nil {
		return
	}
	last := p.nodes[len(p.nodes)-1]
	p.nodes[n.place], last.place = last, n.place
	p.nodes = slices.Delete(p.nodes, len(p.nodes)-1, len(p.nodes))
	n.pool = nil
	c.tell(n, -1)
	for _, pods := range n.pods {
		pods.revision.add(p, -pods.n)
		if len(pods.revision.pools) == 0 {
			delete(c.revisions, pods.revision.key)
		}
	}
}

// tell counts what n itself is.
func (c *Counter) tell(n *node, sign int) {
	if n.facts.Capacity.Type == decision.Spot || n.facts.Signal != decision.NoSignal {
		c.special += sign
	}
	switch {
	case n.facts.Capacity.Source != decision.Settling:
	case sign > 0:
		c.settling[n] = struct{}{}
	default:
		delete(c.settling, n)
	}
}

// tally counts the pods of a node by revision. Those without siblings (no controller) and those without a policy are left out.
func (c *Counter) tally(into []podsOf, pods []fwk.PodInfo) []podsOf {
	for _, info := range pods {
		pod := info.GetPod()
		controller := metav1.GetControllerOfNoCopy(pod)
		if controller == nil || !kube.Live(pod) || !kube.HasOpinion(pod) {
			continue
		}
		key := kube.KeyOf(pod.Namespace, controller)
		if i := slices.IndexFunc(into, func(p podsOf) bool { return p.revision.key == key }); i >= 0 {
			into[i].n++
			continue
		}
		r := c.revisions[key]
		if r == nil {
			r = &revision{key: key}
			c.revisions[key] = r
		}
		into = append(into, podsOf{r, 1})
	}
	return into
}

// pool returns the pool of that key, a new one if there was none.
func (c *Counter) pool(key decision.SpreadPool) *pool {
	if p := c.poolOf[key]; p != nil {
		return p
	}
	zone, known := c.zones[key.Zone]
	if !known {
		zone = len(c.zones)
		c.zones[key.Zone] = zone
	}
	p := &pool{capacity: key.Capacity, pool: key.Pool, index: len(c.pools), zone: zone}
	c.pools, c.poolOf[key] = append(c.pools, p), p
	return p
}

// add counts n more pods of r in p.
func (r *revision) add(p *pool, n int) {
	i := slices.IndexFunc(r.pools, func(in podsIn) bool { return in.pool == p })
	if i < 0 {
		r.pools = append(r.pools, podsIn{p, n})
		return
	}
	if r.pools[i].n += n; r.pools[i].n == 0 {
		r.pools = slices.Delete(r.pools, i, i+1)
	}
}

// placed returns where r's pods stand, by capacity type.
func (r *revision) placed() decision.Placed {
	var placed decision.Placed
	if r == nil {
		return placed
	}
	for _, in := range r.pools {
		placed.Add(in.pool.capacity, in.n)
	}
	return placed
}

// siblings returns how many of r's pods are on n.
func (n *node) siblings(r *revision) int {
	for _, pods := range n.pods {
		if pods.revision == r {
			return pods.n
		}
	}
	return 0
}

// Placed returns where the pods of a revision stand.
func (c *Counter) Placed(revision kube.OwnerKey) decision.Placed {
	return c.revisions[revision].placed()
}

// NextSettled returns when the next of the nodes that wait for their capacity label stops doing so; the zero time if none does.
func (c *Counter) NextSettled() time.Time {
	next := int64(math.MaxInt64)
	for n := range c.settling {
		next = min(next, n.until)
	}
	if next == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, next)
}
