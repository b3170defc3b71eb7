package placement

import (
	"iter"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Counter counts the pods of every revision by pool and caches the facts about every node that a
// decision needs. In a scheduler, Update and UpdateNodes read the snapshot, which already includes
// assumed pods. In an extender, a Cluster feeds it. Only nodes that changed are read again.
//
// Update, UpdateNodes, UpdateRisks, State.Search and State.Select must not run concurrently with
// any other method. Between these calls, everything may be read concurrently.
type Counter struct {
	reader *node.Reader

	nodes          map[string]*nodeState
	stale          []*nodeState       // nodes that were read after their pods were last counted
	order          []snapshotPosition // in the order of the last snapshot
	revisions      map[workload.OwnerKey]*revision
	spotOrSignaled int                     // number of nodes that are spot or have an interruption signal
	settling       map[*nodeState]struct{} // nodes that wait for their capacity label
	nextChange     int64                   // a lower bound of node.until over all nodes

	// Pools and zones are never removed: their number is bounded by what the cloud provider offers.
	pools    []*pool // by pool.index
	poolOf   map[decision.SpreadPool]*pool
	zones    map[string]int // zone name to index
	rotation int            // rotates the pools; see orderedPools

	newLosses      map[*pool][]decision.Losses // losses that UpdateRisks has not processed yet
	losses         map[*pool]decision.Losses   // pools that lost nodes within the last ten half-lives
	poolsWithPrior int                         // number of pools whose prior risk is set
	risksAt        time.Time                   // when the risks of all pools with losses were last computed

	// Events receives the Node events of an informer at any time, before or after the snapshot
	// shows the same change.
	Events   node.Events
	Evidence *workload.NodeEvidence // the nodes of the last snapshot
	// Memory passes losses on to later leaders. The counters of all profiles share it.
	Memory *leader.Memory
}

// revision counts the live pods of one revision by pool. node.counted has them by node. A nil
// *revision has no pods.
type revision struct {
	key   workload.OwnerKey
	pools []poolCount
}

type poolCount struct {
	pool *pool
	n    int
}

// pool contains all nodes of one decision.SpreadPool.
type pool struct {
	key   decision.SpreadPool
	index int
	zone  int
	nodes []*nodeState
	next  int // index in nodes at which the next search begins
	// prior is the pool's risk without its losses; risk includes them. Both are 0 for on-demand
	// nodes.
	prior, risk float64
}

// NodeInfo is a node with its pods, as a Counter reads it.
type NodeInfo interface {
	Node() *v1.Node
	// Pods yields the pods on the node, live or not.
	Pods() iter.Seq[*v1.Pod]
	// Free returns the resources that no pod on the node requests.
	Free() workload.Resources
}

type nodeState struct {
	facts decision.Node
	// free is stored in the node because a search reads it for a hundred nodes that are not in the
	// CPU cache. Following pointers would dominate its cost.
	free       workload.Resources
	restricted bool         // cordoned or tainted: some pods cannot be scheduled here
	avoided    bool         // with a taint PreferNoSchedule: some pods should not
	counted    []countedPod // the pods of info at the last count, in its order
	stale      bool         // it is in Counter.stale
	pool       *pool        // nil: not counted
	position   int          // index in pool.nodes
	name       string
	info       NodeInfo
	generation int64 // in the last snapshot
	until      int64 // Unix nanoseconds at which facts change even if the node does not; math.MaxInt64 for never
	seen       bool  // used by reorder only
	history    nodeHistory
	// State.Select sets its number, and the index of the node in its names.
	selection, candidate int
}

type countedPod struct {
	pod      *v1.Pod
	revision *revision // nil: the pod does not count
}

// NewCounter returns an empty Counter that reads nodes with reader.
func NewCounter(reader *node.Reader) *Counter {
	return &Counter{
		reader:    reader,
		Evidence:  workload.NewNodeEvidence(reader.Policy),
		Memory:    &leader.Memory{},
		nodes:     map[string]*nodeState{},
		settling:  map[*nodeState]struct{}{},
		revisions: map[workload.OwnerKey]*revision{},
		poolOf:    map[decision.SpreadPool]*pool{},
		zones:     map[string]int{},
		newLosses: map[*pool][]decision.Losses{},
		losses:    map[*pool]decision.Losses{},
	}
}

func (c *Counter) node(name string) *nodeState {
	n := c.nodes[name]
	if n == nil {
		n = &nodeState{name: name}
		c.nodes[name] = n
	}
	return n
}

func (c *Counter) remove(n *nodeState, now time.Time) {
	c.recordDeletion(n, now)
	c.uncount(n)
	c.Evidence.Delete(n.name)
	delete(c.nodes, n.name)
}

// findNextChange sets nextChange after all nodes that were due have been read.
func (c *Counter) findNextChange() {
	c.nextChange = math.MaxInt64
	for _, n := range c.nodes {
		c.nextChange = min(c.nextChange, n.until)
	}
}

// read reads a node that has changed, or whose facts have changed at now.
func (c *Counter) read(n *nodeState, now time.Time) {
	object := n.info.Node()
	if n.history.uid != object.UID {
		if n.pool != nil { // another node has reused the name
			c.recordDeletion(n, now)
		}
		n.history = nodeHistory{uid: object.UID}
	}
	facts, until := c.reader.Read(object, now)
	until = node.Earlier(until, c.Evidence.Set(object, facts.Capacity, now))
	c.setFacts(n, facts)
	n.free, n.until = n.info.Free(), math.MaxInt64
	n.restricted = object.Spec.Unschedulable || len(object.Spec.Taints) > 0
	n.avoided = slices.ContainsFunc(object.Spec.Taints, func(t v1.Taint) bool { return !workload.ExcludesPods(&t) })
	if !until.IsZero() {
		n.until = until.UnixNano()
		c.nextChange = min(c.nextChange, n.until)
	}
	if !n.stale {
		n.stale = true
		c.stale = append(c.stale, n)
	}
	c.checkLoss(n, now)
}

// setFacts sets the facts about n and adds n to their pool. If n was in another pool, its pods are
// not counted yet.
func (c *Counter) setFacts(n *nodeState, facts decision.Node) {
	if p := c.pool(facts.SpreadPool()); p == n.pool {
		c.trackNode(n, -1)
	} else {
		c.uncount(n)
		n.pool, n.position = p, len(p.nodes)
		p.nodes = append(p.nodes, n)
	}
	n.facts = facts
	c.trackNode(n, 1)
}

// uncount removes n from its pool and its pods from their revisions. It does nothing if n is in no
// pool.
func (c *Counter) uncount(n *nodeState) {
	p := n.pool
	if p == nil {
		return
	}
	c.dropPods(n, 0)
	last := p.nodes[len(p.nodes)-1]
	p.nodes[n.position], last.position = last, n.position
	p.nodes = slices.Delete(p.nodes, len(p.nodes)-1, len(p.nodes))
	c.trackNode(n, -1)
	n.pool = nil
}

// trackNode updates the cluster-wide node counts for n: sign is 1 to add n and -1 to remove it.
func (c *Counter) trackNode(n *nodeState, sign int) {
	if n.facts.Capacity.Type == decision.Spot || n.facts.Signal != decision.NoSignal {
		c.spotOrSignaled += sign
	}
	switch {
	case n.facts.Capacity.Source != decision.Settling:
	case sign > 0:
		c.settling[n] = struct{}{}
	default:
		delete(c.settling, n)
	}
}

// countPods counts the pods of the nodes that were read since the last count.
func (c *Counter) countPods() {
	for _, n := range c.stale {
		n.stale = false
		c.countPodsOn(n)
	}
	clear(c.stale)
	c.stale = c.stale[:0]
}

// countPodsOn counts the pods of n that have changed. It compares the pods by position, because
// most stay where they are, and comparing a pointer is faster than reading the pod.
func (c *Counter) countPodsOn(n *nodeState) {
	i := 0
	for pod := range n.info.Pods() {
		if i == len(n.counted) {
			n.counted = append(n.counted, countedPod{})
		}
		if before := n.counted[i]; before.pod != pod {
			n.counted[i] = countedPod{pod, c.revisionOf(pod)}
			c.add(n.counted[i].revision, n.pool, 1)
			c.add(before.revision, n.pool, -1)
		}
		i++
	}
	c.dropPods(n, i)
}

// dropPods subtracts the counted pods of n from the index first on.
func (c *Counter) dropPods(n *nodeState, first int) {
	for _, gone := range n.counted[first:] {
		c.add(gone.revision, n.pool, -1)
	}
	n.counted = slices.Delete(n.counted, first, len(n.counted))
}

// revisionOf returns the revision that a pod counts in. It returns nil for pods without a
// controller, which have no siblings, and for pods without a policy.
func (c *Counter) revisionOf(pod *v1.Pod) *revision {
	if metav1.GetControllerOfNoCopy(pod) == nil || !workload.Live(pod) || !workload.PolicyApplies(pod) {
		return nil
	}
	key := workload.RevisionOf(pod)
	r := c.revisions[key]
	if r == nil {
		r = &revision{key: key}
		c.revisions[key] = r
	}
	return r
}

// add adds delta to the number of pods of r in p, unless r is nil. It removes a revision without
// pods.
func (c *Counter) add(r *revision, p *pool, delta int) {
	if r == nil {
		return
	}
	i := slices.IndexFunc(r.pools, func(in poolCount) bool { return in.pool == p })
	if i < 0 {
		r.pools = append(r.pools, poolCount{p, delta})
		return
	}
	if r.pools[i].n += delta; r.pools[i].n == 0 {
		r.pools = slices.Delete(r.pools, i, i+1)
	}
	if len(r.pools) == 0 {
		delete(c.revisions, r.key)
	}
}

func (c *Counter) pool(key decision.SpreadPool) *pool {
	if p := c.poolOf[key]; p != nil {
		return p
	}
	zone, known := c.zones[key.Zone]
	if !known {
		zone = len(c.zones)
		c.zones[key.Zone] = zone
	}
	p := &pool{key: key, index: len(c.pools), zone: zone}
	c.pools, c.poolOf[key] = append(c.pools, p), p
	return p
}

func (r *revision) placed() decision.PlacedPods {
	var placed decision.PlacedPods
	if r == nil {
		return placed
	}
	for _, in := range r.pools {
		placed.Add(in.pool.key.Capacity, in.n)
	}
	return placed
}

func (n *nodeState) siblings(r *revision) int {
	if r == nil {
		return 0
	}
	siblings := 0
	for i := range n.counted {
		if n.counted[i].revision == r {
			siblings++
		}
	}
	return siblings
}

// Placed returns the number of pods of a revision by capacity type.
func (c *Counter) Placed(revision workload.OwnerKey) decision.PlacedPods {
	return c.revisions[revision].placed()
}

// Node returns the facts about a node and its pool. It returns false for an unknown node.
func (c *Counter) Node(name string) (facts decision.Node, pool decision.SpreadPool, known bool) {
	n := c.nodes[name]
	if n == nil {
		return decision.Node{}, decision.SpreadPool{}, false
	}
	return n.facts, n.pool.key, true
}

// NextSettled returns a time no later than the next at which a node stops waiting for its capacity
// label, or its taints become evidence. It returns the zero time if there is none.
func (c *Counter) NextSettled() time.Time {
	if c.nextChange == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, c.nextChange)
}
