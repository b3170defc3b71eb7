package simulation

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// A kind of nodes that vanished is remembered for rememberKind, and at most maxVanishedKinds
	// are. The time covers a pool that runs only on working days.
	rememberKind     = 7 * 24 * time.Hour
	maxVanishedKinds = 256
	// rememberRefusal is how long an autoscaler's refusal prevents moves.
	rememberRefusal = time.Hour
	// At most maxRefusals are remembered, and at most maxPassedOn kinds are passed on, because the
	// Lease contains them.
	maxRefusals, maxPassedOn = 64, 16
)

// Provisioning is the evidence about the nodes that autoscalers add: the kinds of nodes that exist
// or existed, the pools, and refusals. The zero value contains nothing. It is safe for concurrent
// use.
type Provisioning struct {
	// Policy defines the capacity labels; nil means none. It must not change.
	Policy *decision.Policy
	workload.Pools
	// Memory passes on what later leaders cannot read from the cluster; nil for none.
	Memory *leader.Memory

	mu       sync.Mutex
	kinds    map[uint64]*nodeKind
	nodes    map[*v1.Node]uint64 // the kinds of the nodes of the last Snapshot
	refusals []refusal           // oldest first
}

// nodeKind is an example of equal nodes, and when such a node last existed.
type nodeKind struct {
	*snapshot.Node
	seen time.Time
}

// refusal is a report that no node is added for the pods of a revision that require a capacity
// type.
type refusal struct {
	Revision workload.OwnerKey
	Requires decision.AssignedCapacity
	At       time.Time
}

// passedOn is what later leaders cannot read from the cluster. The nodes of NodePools are not part
// of it, because the NodePools exist.
type passedOn struct {
	Refusals []refusal
	Vanished []vanishedKind // the newest first
}

type vanishedKind struct {
	Labels   map[string]string
	Taints   []v1.Taint
	Capacity decision.Capacity
	Seen     time.Time
}

// load adds what the last leader passed on. The caller must hold k.mu.
func (k *Provisioning) load() {
	var last passedOn
	k.Memory.Load(&last)
	k.refusals = append(last.Refusals, k.refusals...)
	for _, v := range last.Vanished {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: v.Labels}, Spec: v1.NodeSpec{Taints: v.Taints}}
		example := &snapshot.Node{Node: node, Facts: decision.Node{Capacity: v.Capacity}}
		k.kinds[hashOf(example)] = &nodeKind{example, v.Seen}
	}
}

// passOn stores what later leaders cannot read from the cluster. The caller must hold k.mu.
func (k *Provisioning) passOn(now time.Time) {
	next := passedOn{Refusals: k.refusals[max(0, len(k.refusals)-maxRefusals):]}
	for _, kind := range k.kinds {
		if _, ofPool := kind.Labels[providers.NodePoolLabel]; !ofPool && kind.seen.Before(now) {
			next.Vanished = append(next.Vanished, vanishedKind{kind.Labels, kind.Spec.Taints, kind.Facts.Capacity, kind.seen})
		}
	}
	slices.SortFunc(next.Vanished, func(a, b vanishedKind) int { return b.Seen.Compare(a.Seen) })
	next.Vanished = next.Vanished[:min(len(next.Vanished), maxPassedOn)]
	k.Memory.Store(next)
}

// Refuse records that an autoscaler reported at a time that it adds no node for these pods. The
// refusal ends after an hour, or if a pod of the revision runs on a younger node of this capacity
// type. Only the last maxRefusals of a namespace count.
func (k *Provisioning) Refuse(revision workload.OwnerKey, requires decision.AssignedCapacity, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refusals = slices.DeleteFunc(k.refusals, func(r refusal) bool {
		return r.Revision == revision && r.Requires == requires || at.Sub(r.At) >= rememberRefusal
	})
	k.refusals = append(k.refusals, refusal{revision, requires, at})
	of := func(r refusal) bool { return r.Revision.Namespace == revision.Namespace }
	if n := len(k.refusals) - len(slices.DeleteFunc(slices.Clone(k.refusals), of)); n > maxRefusals {
		oldest := slices.IndexFunc(k.refusals, of)
		k.refusals = slices.Delete(k.refusals, oldest, oldest+1)
	}
}

// Refused reports whether a refusal is recorded.
func (k *Provisioning) Refused(revision workload.OwnerKey, requires decision.AssignedCapacity, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.refusals, func(r refusal) bool {
		return r.Revision == revision && r.Requires == requires && now.Sub(r.At) < rememberRefusal
	})
}

// endRefusals ends the refusals that an autoscaler revised: a pod of the revision runs on a node of
// the required capacity type that is younger than the report. An autoscaler may report a limit that
// was just raised. The caller must hold k.mu.
func (k *Provisioning) endRefusals(s *snapshot.Snapshot) {
	if len(k.refusals) == 0 {
		return
	}
	for _, w := range s.Workloads {
		for _, revision := range w.Revisions {
			k.refusals = slices.DeleteFunc(k.refusals, func(r refusal) bool {
				return r.Revision == revision.Key && slices.ContainsFunc(revision.Pods, func(p *snapshot.Pod) bool {
					return p.Node != nil && r.Requires.Admits(p.Node.Facts.Capacity.Type) && p.Node.CreationTimestamp.After(r.At)
				})
			})
		}
	}
}

// noPoolFits reports whether pools that may add a node of the required capacity type are known, and
// each one has a taint that p, of the class c, does not tolerate, or has reached a limit if limits
// count, or cannot offer an extended resource.
func (k *Provisioning) noPoolFits(p *snapshot.Pod, c *class, requires decision.AssignedCapacity, limits bool) bool {
	known := false
	for _, pool := range k.KnownPools() {
		if slices.ContainsFunc(pool.Requirements, func(r v1.NodeSelectorRequirement) bool { return k.excludes(&r, requires) }) {
			continue
		}
		known = true
		if c.AdmitPool(&pool) && (!limits || pool.NotReady || pool.Adds(p.Requests)) {
			return false
		}
	}
	return known
}

// excludes reports whether no node with the label that r requires has the required capacity type.
func (k *Provisioning) excludes(r *v1.NodeSelectorRequirement, requires decision.AssignedCapacity) bool {
	return r.Operator == v1.NodeSelectorOpIn && len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(value string) bool {
		capacity, known := k.Policy.LabelMeaning(r.Key, value)
		return !known || requires.Admits(capacity)
	})
}

// observe records the nodes of a Snapshot, and returns an example of each kind.
func (k *Provisioning) observe(s *snapshot.Snapshot) (examples []*snapshot.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[uint64]*nodeKind{}
		k.load()
	}
	k.endRefusals(s)
	nodes, kinds := make(map[*v1.Node]uint64, len(s.Nodes)), k.kinds
	for _, n := range s.Nodes {
		if n.Facts.Capacity.Source == decision.Settling || providers.Starting(n.Node) {
			continue // its capacity label may still arrive, or its taints may disappear
		}
		kind, known := k.nodes[n.Node]
		if !known {
			example := exampleOf(n)
			if kind = hashOf(example); kinds[kind] == nil {
				kinds[kind] = &nodeKind{Node: example}
			}
		}
		nodes[n.Node], kinds[kind].seen = kind, s.Now
	}
	maps.DeleteFunc(kinds, func(_ uint64, kind *nodeKind) bool { return s.Now.Sub(kind.seen) > rememberKind })
	for len(kinds) > len(nodes)+maxVanishedKinds {
		delete(kinds, slices.MinFunc(slices.Sorted(maps.Keys(kinds)), func(a, b uint64) int { return kinds[a].seen.Compare(kinds[b].seen) }))
	}
	k.nodes = nodes
	k.passOn(s.Now)
	for _, kind := range kinds {
		examples = append(examples, kind.Node)
	}
	return examples
}

// exampleOf returns a new node of the node's kind: with its permanent taints and its resources,
// and with its labels except its name.
func exampleOf(node *snapshot.Node) *snapshot.Node {
	example := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(node.Labels)},
		Status:     v1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable},
	}
	maps.DeleteFunc(example.Labels, func(key, value string) bool { return key == v1.LabelHostname || value == node.Name })
	for i := range node.Spec.Taints {
		if t := node.Spec.Taints[i]; workload.PermanentTaint(&t) {
			t.TimeAdded = nil
			example.Spec.Taints = append(example.Spec.Taints, t)
		}
	}
	return &snapshot.Node{Node: example, Facts: decision.Node{Capacity: node.Facts.Capacity}}
}

func hashOf(example *snapshot.Node) uint64 {
	h := fnv.New64a()
	// Maps are printed in the order of their keys. A hash returns no error.
	_, _ = fmt.Fprint(h, example.Facts.Capacity.Type, example.Labels, example.Spec.Taints, workload.Offered(example.Node))
	return h.Sum64()
}

// Feasibility determines whether nodes that exist, or that an autoscaler may add, could run the
// replacement of a pod if they were empty and healthy. It considers the pod's own node selector,
// node affinity, tolerations, volumes, required pod affinity and anti-affinity, and its hard
// topology spread. It is not safe for concurrent use.
type Feasibility struct {
	snapshot     *snapshot.Snapshot
	provisioning *Provisioning
	kinds        []*snapshot.Node    // an example of each kind of nodes
	zones        map[string][]string // of the kinds, by NodePool
}

// Feasibility records the nodes of s, and returns the feasibility on nodes that exist or may be
// added. A nil Provisioning knows only these nodes. The result is valid as long as s.
func (k *Provisioning) Feasibility(s *snapshot.Snapshot) *Feasibility {
	if k == nil {
		k = &Provisioning{}
	}
	f := &Feasibility{s, k, k.observe(s), map[string][]string{}}
	for _, kind := range f.kinds {
		pool, zone := kind.Labels[providers.NodePoolLabel], kind.Labels[v1.LabelTopologyZone]
		if pool != "" && zone != "" && !slices.Contains(f.zones[pool], zone) {
			f.zones[pool] = append(f.zones[pool], zone)
		}
	}
	return f
}

// FitsNewNode reports whether an autoscaler may add a node of the required capacity type that could
// run the replacement of p. It is false if the replacement must run on one particular node, or if
// an autoscaler refused.
func (f *Feasibility) FitsNewNode(p *snapshot.Pod, requires decision.AssignedCapacity) bool {
	refused := p.SuccessorRefused() != "" || p.Revision != nil && f.provisioning.Refused(p.Revision.Key, requires, f.snapshot.Now)
	return !refused && f.fits(p, requires, false, true)
}

// FitsOtherNode reports whether a node of the required capacity type other than the node of p could
// run the replacement of p: a new node, or an existing node if it were empty and healthy.
func (f *Feasibility) FitsOtherNode(p *snapshot.Pod, requires decision.AssignedCapacity) bool {
	return f.fits(p, requires, true, true)
}

// FitsLater is as FitsOtherNode for a pod that can wait: a limit that a pool has reached does not
// count, because it may be raised, and nodes of the pool may end.
func (f *Feasibility) FitsLater(p *snapshot.Pod, requires decision.AssignedCapacity) bool {
	return f.fits(p, requires, true, false)
}

// MayRemove reports whether an autoscaler may remove the node.
func (f *Feasibility) MayRemove(node *snapshot.Node) bool {
	return providers.MayScaleDown(node.Node, len(f.provisioning.KnownPools()) > 0)
}

// fits judges by the nodes that exist or existed, and by the pools. An unknown capacity type, or a
// requirement that no known node meets, is no evidence against an autoscaler: it may start from no
// nodes. So fits returns false only if a node of another type, or the node of p, could run the pod,
// no pool adds a node for it now (poolAdds), and the required capacity type is known or no known
// pool can add a node of it for the pod. Sizes do not count, because a new node may be larger. Nor
// does the requirement that package gating added to p, because the replacement gets its own.
func (f *Feasibility) fits(p *snapshot.Pod, requires decision.AssignedCapacity, existing, limits bool) bool {
	before := *p
	before.Pod = workload.BeforeAssignment(p.Pod, f.provisioning.Policy)
	c, changes := newClass(&before, nil), newChanges(f.snapshot.Index())
	c.terms = changes.newTerms(c.pod)
	changes.move(map[*snapshot.Pod]*snapshot.Node{p: nil}, 1)
	evidence, known := false, false
	for _, kind := range f.kinds {
		required := requires.Admits(kind.Facts.Capacity.Type)
		known = known || required
		if (required || !evidence) && c.suitableWhenHealthy(kind) && f.allows(c, changes, kind) {
			if required {
				return true
			}
			evidence = true
		}
	}
	for i, node := range f.snapshot.Nodes {
		useful := existing && node != p.Node && requires.Admits(node.Facts.Capacity.Type)
		if (useful || !evidence) && c.suitableWhenHealthy(node) && c.terms.allows(i) {
			if useful {
				return true
			}
			evidence = true
		}
	}
	return !evidence || !known && !f.provisioning.noPoolFits(p, c, requires, limits) || f.poolAdds(&before, c, changes, requires)
}

// poolAdds reports whether a pool can add a node of the required capacity type for the replacement
// of p now: it is ready and below its limits, and no autoscaler has refused. Nodes of another kind,
// such as the nodes of a group for the system, are no evidence against it.
func (f *Feasibility) poolAdds(p *snapshot.Pod, c *class, changes *changes, requires decision.AssignedCapacity) bool {
	if p.Revision != nil && f.provisioning.Refused(p.Revision.Key, requires, f.snapshot.Now) {
		return false
	}
	return slices.ContainsFunc(f.provisioning.KnownPools(), func(pool providers.NodePool) bool {
		adds := func(capacity decision.CapacityType) bool {
			return slices.ContainsFunc(f.inZones(pool), func(pool providers.NodePool) bool {
				node := workload.PoolNode(&pool, f.provisioning.Policy, p.Pod, p.Volumes, capacity)
				return node != nil && f.allows(c, changes, &snapshot.Node{Node: node})
			})
		}
		return pool.Adds(p.Requests) &&
			(requires.Admits(decision.OnDemand) && adds(decision.OnDemand) || requires.Admits(decision.Spot) && adds(decision.Spot))
	})
}

// inZones returns the pool, and the pool limited to each zone that it requires, or in which nodes
// of it exist or existed. The terms of a pod may admit only one of its zones.
func (f *Feasibility) inZones(pool providers.NodePool) []providers.NodePool {
	zones, all := f.zones[pool.Name], slices.Clip(pool.Requirements)
	for _, r := range all {
		if r.Key == v1.LabelTopologyZone && r.Operator == v1.NodeSelectorOpIn {
			zones = r.Values
		}
	}
	pools := []providers.NodePool{pool}
	for _, zone := range zones {
		in := v1.NodeSelectorRequirement{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}
		pool.Requirements = append(all, in)
		pools = append(pools, pool)
	}
	return pools
}

// allows reports whether the terms of the class allow a pod on a new node. The node gets the number
// after the last node of the Snapshot. It shares a domain with the nodes that have the same label
// value, but no other node has its name.
func (f *Feasibility) allows(c *class, changes *changes, node *snapshot.Node) bool {
	nodes := f.snapshot.Nodes
	n := len(nodes)
	for key, tally := range changes.tallies {
		domain := int32(snapshot.NoDomain)
		if value, ok := node.Labels[key.topologyKey]; ok || key.topologyKey == v1.LabelHostname {
			domain = int32(n) // of no other node
			if i := slices.IndexFunc(nodes, func(other *snapshot.Node) bool { return ok && other.Labels[key.topologyKey] == value }); i >= 0 {
				domain = tally.domains[i]
			}
		}
		tally.domains = append(tally.domains[:n:n], domain)
	}
	return c.terms.allows(n)
}
