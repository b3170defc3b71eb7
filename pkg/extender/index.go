package extender

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// strayFor is how long a pod counts as one on spot whose node is not known: the watches of pods and nodes are not ordered, so the node may
// be new. One that is still not known then is gone, and its pods with it.
const strayFor = 10 * time.Second

// index knows where the pods of every revision stand, and what a decision needs to know of every node. Events of informers keep it up to
// date, so that a decision costs what its candidates and the pod's siblings cost, and not what the cluster has.
type index struct {
	reader *kube.NodeReader

	// mu is held for reading as long as a decision is made, and for writing by events.
	mu    sync.RWMutex
	nodes map[string]*node
	// kindsByName says the kind of every node. A request looks up thousands, and this takes less memory to read than nodes.
	kindsByName *table
	revisions   map[kube.OwnerKey]map[string]int // how many live pods, by the name of their node
	bound       map[types.UID]struct{}           // every pod that is known to be bound
	nominees    map[kube.OwnerKey]map[types.UID]*v1.Pod
	strays      map[string]time.Time // unknown nodes that pods are bound to: until when these count
	labels      kube.LabelHistory
	labeled     atomic.Bool      // the nodes were read as beside labelled ones
	settling    map[string]*node // nodes that wait for their capacity label

	// Kinds and zones are kept for good: there are no more than the cloud has.
	kinds  []*kind // by their index
	kindOf map[kindKey]*kind
	zones  map[string]int // name to index

	next atomic.Int64 // the earliest until of all nodes, or earlier
}

// kind is all nodes that are the same to a decision, but for the pods on them.
type kind struct {
	kindKey
	index, zone int
}

type kindKey struct {
	facts decision.Node
	zone  string
}

// pool is what siblings in a pool are counted by.
func (k kindKey) pool() decision.SpreadPool { return k.facts.SpreadPool(k.zone) }

// node is what is known of one node.
type node struct {
	object *v1.Node
	kind   *kind
	until  int64 // when its kind changes although the Node does not, in Unix nanoseconds; math.MaxInt64 for never
}

func newIndex(reader *kube.NodeReader) *index {
	x := &index{
		reader: reader, nodes: map[string]*node{}, kindsByName: newTable(),
		revisions: map[kube.OwnerKey]map[string]int{}, bound: map[types.UID]struct{}{},
		nominees: map[kube.OwnerKey]map[types.UID]*v1.Pod{}, settling: map[string]*node{},
		strays: map[string]time.Time{}, kindOf: map[kindKey]*kind{}, zones: map[string]int{},
	}
	x.next.Store(math.MaxInt64)
	return x
}

// setNode takes over a node that is new or has changed. mu must be held for writing, as for all that change the index.
func (x *index) setNode(object *v1.Node, now time.Time) {
	n := x.nodes[object.Name]
	if n == nil {
		n = &node{}
		x.nodes[object.Name] = n
		delete(x.strays, object.Name)
	}
	n.object = object
	x.read(n, now)
	x.relabel(now)
}

// deleteNode forgets a node. Its pods no longer count, whether or not they are there still.
func (x *index) deleteNode(name string, now time.Time) {
	if x.nodes[name] == nil {
		return
	}
	delete(x.nodes, name)
	delete(x.settling, name)
	x.kindsByName.set(name, noKind)
	x.strays[name] = now // no longer than until now
}

// relabel reads all nodes again if a capacity label was seen for the first time: unlabeled nodes settle from then on.
func (x *index) relabel(now time.Time) {
	if x.labels.Seen() && x.labeled.CompareAndSwap(false, true) {
		for _, n := range x.nodes {
			x.read(n, now)
		}
	}
}

func (x *index) read(n *node, now time.Time) {
	facts, until := x.reader.Read(n.object, x.labeled.Load(), now)
	x.labels.Note(facts.Capacity)
	if facts.Capacity.Source == decision.Settling {
		x.settling[n.object.Name] = n
	} else {
		delete(x.settling, n.object.Name)
	}
	n.until = math.MaxInt64
	if !until.IsZero() {
		n.until = until.UnixNano()
		x.next.Store(min(x.next.Load(), n.until))
	}
	n.kind = x.kind(kindKey{facts, n.object.Labels[v1.LabelTopologyZone]})
	x.kindsByName.set(n.object.Name, int32(n.kind.index))
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// kind returns the kind of that key, a new one if there was none.
func (x *index) kind(key kindKey) *kind {
	if k := x.kindOf[key]; k != nil {
		return k
	}
	zone, known := x.zones[key.zone]
	if !known {
		zone = len(x.zones)
		x.zones[key.zone] = zone
	}
	k := &kind{kindKey: key, index: len(x.kinds), zone: zone}
	x.kinds, x.kindOf[key] = append(x.kinds, k), k
	return k
}

// refresh reads again the nodes whose kind has changed by now although the Node has not. It returns those that got no capacity label within
// their grace. mu must not be held.
func (x *index) refresh(now time.Time) (unlabeled []*v1.Node) {
	nanos := now.UnixNano()
	if nanos < x.next.Load() && x.labeled.Load() == x.labels.Seen() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.relabel(now)
	for _, n := range x.nodes {
		if nanos < n.until {
			continue
		}
		before := n.kind.facts.Capacity.Source
		x.read(n, now)
		if capacity := n.kind.facts.Capacity; before == decision.Settling && capacity.Source == decision.FromDefault {
			unlabeled = append(unlabeled, n.object)
		}
	}
	next := int64(math.MaxInt64)
	for _, n := range x.nodes {
		next = min(next, n.until)
	}
	x.next.Store(next)
	return unlabeled
}

// setPod takes over a pod that has changed from before to after; nil for one that is new or gone.
func (x *index) setPod(before, after *v1.Pod, now time.Time) {
	x.nominate(before, after)
	if before != nil {
		x.tally(before, -1, now)
		delete(x.bound, before.UID)
	}
	if after != nil {
		x.tally(after, 1, now)
		if after.Spec.NodeName != "" {
			x.bound[after.UID] = struct{}{}
		}
	}
}

// nominate records a pod that has changed from before to after if preemption has promised it a node; nil for one that is new or gone.
func (x *index) nominate(before, after *v1.Pod) {
	if before != nil {
		revision := kube.RevisionOf(before)
		delete(x.nominees[revision], before.UID)
		if len(x.nominees[revision]) == 0 {
			delete(x.nominees, revision)
		}
	}
	if after == nil || !kube.Nominated(after) {
		return
	}
	revision := kube.RevisionOf(after)
	if x.nominees[revision] == nil {
		x.nominees[revision] = map[types.UID]*v1.Pod{}
	}
	x.nominees[revision][after.UID] = after
}

// countNominees adds the nominated pods of a revision, except for one of it and for those that are counted already, to where its pods are.
// If that one is nominated too, only those before it count (kube.NominatedBefore).
func (x *index) countNominees(revision kube.OwnerKey, except types.UID, s *siblings, counted func(types.UID) bool) {
	own, nominated := x.nominees[revision][except]
	for uid, sibling := range x.nominees[revision] {
		n := x.nodes[sibling.Status.NominatedNodeName]
		if uid == except || n == nil || counted(uid) {
			continue
		}
		if nominated && !kube.NominatedBefore(sibling, own) {
			continue
		}
		s.placed.Add(n.kind.facts.Capacity.Type, 1)
		if n.kind.facts.Capacity.Type == decision.Spot {
			s.inPool[n.kind.pool()]++
		}
	}
}

// tally counts a pod in its revision. Those without siblings (no controller) and those without a policy are left out.
func (x *index) tally(pod *v1.Pod, n int, now time.Time) {
	name := pod.Spec.NodeName
	controller := metav1.GetControllerOfNoCopy(pod)
	if name == "" || controller == nil || !kube.Live(pod) || !kube.HasOpinion(pod) {
		return
	}
	revision := kube.KeyOf(pod.Namespace, controller)
	on := x.revisions[revision]
	if on == nil {
		on = map[string]int{}
		x.revisions[revision] = on
	}
	if on[name] += n; on[name] == 0 {
		delete(on, name)
	}
	if len(on) == 0 {
		delete(x.revisions, revision)
	}
	if _, stray := x.strays[name]; n > 0 && !stray && x.nodes[name] == nil {
		x.strays[name] = now.Add(strayFor)
	}
}

// forgetStrays forgets the unknown nodes whose pods have not counted for a while.
func (x *index) forgetStrays(now time.Time) {
	inUse := map[string]bool{}
	for _, on := range x.revisions {
		for name := range on {
			if x.nodes[name] == nil {
				inUse[name] = true
			}
		}
	}
	for name, until := range x.strays {
		if !inUse[name] && now.After(until) {
			delete(x.strays, name)
		}
	}
}

// siblings is where the pods of one revision stand. The zero value has none.
type siblings struct {
	placed decision.Placed
	// onNode counts by the name of the node, inZone by the index of the zone. inPool counts those on spot only.
	onNode map[string]int
	inZone []int
	inPool map[decision.SpreadPool]int
}

// siblings counts a revision's pods around every node. mu must be held for reading as long as the result is used.
func (x *index) siblings(revision kube.OwnerKey, now time.Time) siblings {
	s := siblings{onNode: x.revisions[revision], inZone: make([]int, len(x.zones)), inPool: map[decision.SpreadPool]int{}}
	for name, pods := range s.onNode {
		n := x.nodes[name]
		switch {
		case n == nil:
			if now.Before(x.strays[name]) {
				s.placed.Spot += pods
			}
			continue
		case n.kind.facts.Capacity.Type == decision.Spot:
			s.placed.Spot += pods
			s.inPool[n.kind.pool()] += pods
		default:
			s.placed.OnDemand += pods
		}
		s.inZone[n.kind.zone] += pods
	}
	return s
}

// onOnDemand reports whether any pod of these revisions stands on an on-demand node.
func (x *index) onOnDemand(revisions []kube.OwnerKey) bool {
	return slices.ContainsFunc(revisions, func(revision kube.OwnerKey) bool {
		for name := range x.revisions[revision] {
			if n := x.nodes[name]; n != nil && n.kind.facts.Capacity.Type == decision.OnDemand {
				return true
			}
		}
		return false
	})
}

// nodesBy counts the nodes by capacity type and by what said so.
func (x *index) nodesBy() map[decision.Capacity]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	by := map[decision.Capacity]int{}
	for _, n := range x.nodes {
		by[n.kind.facts.Capacity]++
	}
	return by
}

// capacityOf returns the capacity type of the node of that name; false if there is none.
func (x *index) capacityOf(name string) (decision.CapacityType, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[name]
	if n == nil {
		return decision.OnDemand, false
	}
	return n.kind.facts.Capacity.Type, true
}

// holds reports whether a pod is known to be bound.
func (x *index) holds(uid types.UID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, bound := x.bound[uid]
	return bound
}
