package simulation

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// NewInspection returns the demand of p for Obstacles. p need not belong to s (see Hypothetical). A
// bound pod counts as unbound: the resources that it uses are available to it.
func NewInspection(s *snapshot.Snapshot, p *snapshot.Pod) *Demand {
	return NewDemand(s, p, map[*snapshot.Pod]*snapshot.Node{p: nil})
}

// Hypothetical returns a pod to inspect that is in no Snapshot. It is not bound, and has no volumes
// and no workload.
func Hypothetical(pod *v1.Pod) *snapshot.Pod {
	return &snapshot.Pod{Pod: pod, Requests: workload.RequestsOf(pod)}
}

// NotSelected is the obstacle of a node that the pod's node selector or affinity excludes.
const NotSelected = "not in the pod's node selector or affinity"

// Obstacles returns the reasons why the pod cannot run on the node in the current state of the
// cluster, the most permanent first; nil if it can. It considers the same filters of the scheduler
// as Room, but neither the policy nor signals. Unlike Room, it does not place pending pods first.
func (d *Demand) Obstacles(node *snapshot.Node) (all []string) {
	c := d.class
	if !c.Matches(node.Node) {
		all = append(all, NotSelected)
	}
	if !c.Reaches(node.Node) {
		all = append(all, "out of reach of the pod's volume")
	}
	if taint := c.UntoleratedTaint(node.Node, workload.ExcludesPods); taint != "" {
		all = append(all, "taint "+taint)
	}
	free := node.Free(func(p *snapshot.Pod) bool { return p != c.pod })
	for _, name := range slices.Sorted(maps.Keys(c.requests)) {
		if need := workload.ResourcesOf(v1.ResourceList{name: c.requests[name]}); !free.Covers(&need) {
			all = append(all, "insufficient "+string(name))
		}
	}
	if !d.portsFree(node, nil) {
		all = append(all, "host port in use")
	}
	return append(all, d.terms().refusals(d.changes.index.Numbers[node])...)
}

func (t *terms) refusals(node int) (all []string) {
	if t == nil {
		return nil
	}
	if !t.satisfiesAffinity(node) {
		all = append(all, "the pod's affinity to other pods")
	}
	if anyInDomain(t.antiAffinityCounts, node) {
		all = append(all, "the pod's anti-affinity to other pods")
	} else if anyInDomain(t.repelling, node) {
		all = append(all, "the anti-affinity of other pods")
	}
	if !t.attaches(node) {
		all = append(all, "a pod elsewhere uses the pod's volume")
	}
	if !t.satisfiesSpread(node) {
		all = append(all, "the pod's topology spread")
	}
	return all
}

// FitsAnyNode returns a function that reports whether any of the nodes could run a pod if the node
// were empty and healthy. The function considers the pod's own node selector, node affinity,
// tolerations and volumes, and the size of the nodes. The pod must belong to a revision. The
// function is not safe for concurrent use.
func FitsAnyNode(nodes []*snapshot.Node) func(*snapshot.Pod) bool {
	classes, fits := map[*snapshot.Revision][]*class{}, map[*class]bool{}
	return func(p *snapshot.Pod) bool {
		known := classes[p.Revision]
		i := slices.IndexFunc(known, func(c *class) bool { return c.contains(p) })
		if i < 0 {
			c := newClass(p, p.Requests)
			fits[c] = slices.ContainsFunc(nodes, c.suitableWhenHealthy)
			known, i = append(known, c), len(known)
			classes[p.Revision] = known
		}
		return fits[known[i]]
	}
}

// suitableWhenHealthy reports whether the node would accept pods of the class if it were empty and
// healthy. Temporary taints are ignored.
func (c *class) suitableWhenHealthy(node *snapshot.Node) bool {
	whole := node.Free(func(*snapshot.Pod) bool { return false })
	return whole.Covers(&c.Needs) && c.Admit(node.Node, workload.PermanentTaint)
}
