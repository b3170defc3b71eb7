package extender

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// unknownNodeTimeout is the time for which a pod on an unknown node counts as one on spot. The
// watches of pods and nodes are not ordered, so the node may be new. If it is still unknown after
// this time, the node and its pods are deleted.
const unknownNodeTimeout = 10 * time.Second

// unknownNodeRetention is how long an unknown node is remembered after that. By then the pods of a
// deleted node are deleted too.
const unknownNodeRetention = time.Hour

// index has the pods of every revision by node, and the facts of every node that decisions need.
// Informer events update it, so the cost of a decision depends on its candidates and the pod's
// siblings, not on the size of the cluster.
type index struct {
	reader *node.Reader

	// A decision locks mu for reading, and events lock it for writing.
	mu           sync.RWMutex
	nodes        map[string]*nodeState
	revisions    map[workload.OwnerKey]map[string]int        // number of live pods by the name of their node
	bound        map[types.UID]struct{}                      // all pods that are known to be bound
	nominees     workload.Groups[workload.OwnerKey, *v1.Pod] // unbound pods that preemption nominated to a node
	unknownNodes map[string]time.Time                        // unknown nodes with bound pods, and until when their pods count

	// kinds are never removed: the cloud has a limited number.
	kinds     []*kind // by their index
	kindByKey map[kindKey]*kind
	evidence  *workload.NodeEvidence // has the same nodes

	nextRefresh atomic.Int64 // no later than the earliest until of all nodes
}

// kind is a set of nodes that are equal to a decision, apart from the pods on them.
type kind struct {
	kindKey
	index int
}

type kindKey struct {
	facts decision.Node
	zone  string
}

// pool returns the pool by which siblings are counted.
func (k kindKey) pool() decision.SpreadPool { return k.facts.SpreadPool(k.zone) }

// nodeState is a node of the cluster.
type nodeState struct {
	name   string
	object *v1.Node
	kind   *kind
	until  int64 // when its kind changes without a change of the Node, in Unix nanoseconds; math.MaxInt64 for never
}

func newIndex(reader *node.Reader) *index {
	x := &index{
		reader: reader, evidence: workload.NewNodeEvidence(reader.Policy), nodes: map[string]*nodeState{},
		revisions: map[workload.OwnerKey]map[string]int{}, bound: map[types.UID]struct{}{},
		nominees: workload.Groups[workload.OwnerKey, *v1.Pod]{}, unknownNodes: map[string]time.Time{}, kindByKey: map[kindKey]*kind{},
	}
	x.nextRefresh.Store(math.MaxInt64)
	return x
}

// setNode adds or updates a node. Callers of all methods that change the index must hold mu for
// writing.
func (x *index) setNode(object *v1.Node, now time.Time) {
	n := x.nodes[object.Name]
	if n == nil {
		n = &nodeState{name: object.Name}
		x.nodes[object.Name] = n
		delete(x.unknownNodes, object.Name)
	}
	n.object = object
	x.readNode(n, now)
}

// deleteNode removes a node. Its pods stop counting, even if they are not deleted yet.
func (x *index) deleteNode(name string, now time.Time) {
	if x.nodes[name] == nil {
		return
	}
	delete(x.nodes, name)
	x.evidence.Delete(name)
	x.unknownNodes[name] = now // its pods count no longer than until now
}

func (x *index) readNode(n *nodeState, now time.Time) {
	facts, until := x.reader.Read(n.object, now)
	until = node.Earlier(until, x.evidence.Set(n.object, facts.Capacity, now))
	n.until = math.MaxInt64
	if !until.IsZero() {
		n.until = until.UnixNano()
		x.nextRefresh.Store(min(x.nextRefresh.Load(), n.until))
	}
	n.kind = x.kind(kindKey{facts, n.object.Labels[v1.LabelTopologyZone]})
}

// kind returns the kind with this key, and adds it if it is new.
func (x *index) kind(key kindKey) *kind {
	if k := x.kindByKey[key]; k != nil {
		return k
	}
	k := &kind{kindKey: key, index: len(x.kinds)}
	x.kinds, x.kindByKey[key] = append(x.kinds, k), k
	return k
}

// refresh reads again the nodes whose kind changes by now without a change of the Node. It returns
// the nodes that got no capacity label within their grace. The caller must not hold mu.
func (x *index) refresh(now time.Time) (unlabeled []*v1.Node) {
	nanos := now.UnixNano()
	if nanos < x.nextRefresh.Load() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.nodes {
		if nanos < n.until {
			continue
		}
		before := n.kind.facts.Capacity.Source
		x.readNode(n, now)
		if capacity := n.kind.facts.Capacity; before == decision.Settling && capacity.Source == decision.FromDefault {
			unlabeled = append(unlabeled, n.object)
		}
	}
	next := int64(math.MaxInt64)
	for _, n := range x.nodes {
		next = min(next, n.until)
	}
	x.nextRefresh.Store(next)
	return unlabeled
}

// setPod updates the index after a pod changed from before to after. before is nil for a new pod,
// after for a deleted pod.
func (x *index) setPod(before, after *v1.Pod, now time.Time) {
	if before != nil {
		x.countPod(before, -1, now)
		delete(x.bound, before.UID)
		x.nominees.Delete(workload.RevisionOf(before), before.UID)
	}
	if after != nil {
		x.countPod(after, 1, now)
		if after.Spec.NodeName != "" {
			x.bound[after.UID] = struct{}{}
		}
		if workload.Nominated(after) {
			x.nominees.Put(workload.RevisionOf(after), after.UID, after)
		}
	}
}

// countNominees adds the nominated pods of a revision to s, without except and without the pods
// that counted reports. If except is nominated too, only the pods nominated before it count
// (workload.OlderNominated).
func (x *index) countNominees(revision workload.OwnerKey, except types.UID, s *siblingCounts, counted func(types.UID) bool) {
	own, nominated := x.nominees[revision][except]
	for uid, sibling := range x.nominees[revision] {
		n := x.nodes[sibling.Status.NominatedNodeName]
		if uid == except || n == nil || counted(uid) {
			continue
		}
		if nominated && !workload.OlderNominated(sibling, own) {
			continue
		}
		s.placed.Add(n.kind.facts.Capacity.Type, 1)
		if n.kind.facts.Capacity.Type == decision.Spot {
			s.inPool[n.kind.pool()]++
		}
	}
}

// countPod adds n to the pods of the pod's revision on its node. Pods without a controller have no
// siblings. They are skipped, as are pods without a policy.
func (x *index) countPod(pod *v1.Pod, n int, now time.Time) {
	name := pod.Spec.NodeName
	if name == "" || metav1.GetControllerOfNoCopy(pod) == nil || !workload.Live(pod) || !workload.PolicyApplies(pod) {
		return
	}
	revision := workload.RevisionOf(pod)
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
	if _, listed := x.unknownNodes[name]; n > 0 && !listed && x.nodes[name] == nil {
		x.unknownNodes[name] = now.Add(unknownNodeTimeout)
	}
}

// forgetUnknownNodes removes the nodes that have been unknown for long. If a pod still names one,
// the pod counts again for unknownNodeTimeout when it changes.
func (x *index) forgetUnknownNodes(now time.Time) {
	maps.DeleteFunc(x.unknownNodes, func(_ string, until time.Time) bool { return now.Sub(until) > unknownNodeRetention })
}

// siblingCounts has the placement of the pods of one revision. The zero value means no pods.
type siblingCounts struct {
	placed decision.PlacedPods
	// onNode and inZone count by name. inPool counts only pods on spot.
	onNode map[string]int
	inZone map[string]int
	inPool map[decision.SpreadPool]int
}

// countSiblings counts a revision's pods by node, zone and pool. The caller must hold mu for
// reading while it uses the result.
func (x *index) countSiblings(revision workload.OwnerKey, now time.Time) siblingCounts {
	s := siblingCounts{onNode: x.revisions[revision], inZone: map[string]int{}, inPool: map[decision.SpreadPool]int{}}
	for name, pods := range s.onNode {
		n := x.nodes[name]
		switch {
		case n == nil:
			if now.Before(x.unknownNodes[name]) {
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

// onOnDemand reports whether any pod of the given revisions runs on an on-demand node.
func (x *index) onOnDemand(revisions []workload.OwnerKey) bool {
	return slices.ContainsFunc(revisions, func(revision workload.OwnerKey) bool {
		for name := range x.revisions[revision] {
			if n := x.nodes[name]; n != nil && n.kind.facts.Capacity.Type == decision.OnDemand {
				return true
			}
		}
		return false
	})
}

// nodesBy counts the nodes by capacity type and by its source.
func (x *index) nodesBy() map[decision.Capacity]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	counts := map[decision.Capacity]int{}
	for _, n := range x.nodes {
		counts[n.kind.facts.Capacity]++
	}
	return counts
}
