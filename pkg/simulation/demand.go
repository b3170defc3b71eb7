package simulation

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Demand contains the requirements of a pending pod on a node, except its resource requests, as far
// as Room considers them. The node accepts new pods, and the pod tolerates its taints. The node
// matches the pod's node selector and affinity, and reaches its bound volumes. The pod's host ports
// are free. The pod's own required pod affinity and anti-affinity and its hard topology spread
// permit the node. A Demand is not safe for concurrent use.
type Demand struct {
	changes *changes
	class   *class
	places  map[*snapshot.Pod]*snapshot.Node
	// terms returns the terms of the class. They are expensive, so the Demand computes them only
	// when a node meets all other requirements.
	terms func() *terms
}

// NewDemand returns the demand of p, which is bound to no node of s. places overrides the nodes of
// pods that are about to move; nil means no node. The caller must not change places while it uses
// the Demand.
func NewDemand(s *snapshot.Snapshot, p *snapshot.Pod, places map[*snapshot.Pod]*snapshot.Node) *Demand {
	d := &Demand{changes: newChanges(s.Index()), class: newClass(p, p.Requests), places: places}
	d.terms = sync.OnceValue(func() *terms {
		terms := d.changes.newTerms(p)
		d.changes.move(places, 1)
		return terms
	})
	return d
}

// Fits reports whether the node would accept the pod if it had enough resources. moves overrides
// the nodes of further pods, which are bound to nodes of the Snapshot; nil means no node. No pod
// may be in both moves and places.
func (d *Demand) Fits(node *snapshot.Node, moves map[*snapshot.Pod]*snapshot.Node) bool {
	if !open(node) || !d.class.Admit(node.Node, workload.ExcludesPods) || !d.portsFree(node, moves) {
		return false
	}
	terms := d.terms()
	d.changes.move(moves, 1)
	defer d.changes.move(moves, -1)
	return terms.allows(d.changes.index.Numbers[node])
}

// portsFree reports whether no other pod on the node uses one of the pod's host ports.
func (d *Demand) portsFree(node *snapshot.Node, moves map[*snapshot.Pod]*snapshot.Node) bool {
	if len(d.class.ports) == 0 {
		return true
	}
	used := fwk.HostPortInfo{}
	for _, p := range node.Pods {
		_, placed := d.places[p]
		if _, moving := moves[p]; !placed && !moving {
			countPorts(used, hostPorts(p.Pod), 1)
		}
	}
	for _, places := range []map[*snapshot.Pod]*snapshot.Node{d.places, moves} {
		for p, to := range places {
			if to == node {
				countPorts(used, hostPorts(p.Pod), 1)
			}
		}
	}
	return !conflict(used, d.class.ports)
}

// maxHopeless is how many different pending pods of a namespace are searched in vain.
const maxHopeless = 100

// placePending reserves room for the pending pods. It searches only once for pods of a class that
// fit nowhere, and for at most maxHopeless such classes of a namespace. Most pods that are pending
// for long fit nowhere, and one tenant may have thousands.
func (r *Room) placePending() {
	var waiting []*snapshot.Pod
	nominated := map[*snapshot.Pod]*site{}
	for _, p := range r.snapshot.Pods {
		if p.Spec.NodeName != "" || !workload.Live(p.Pod) || len(p.Spec.SchedulingGates) > 0 {
			continue
		}
		waiting = append(waiting, p)
		if at := r.siteNamed(p.Status.NominatedNodeName); at != nil && !Excessive(p) {
			nominated[p] = at
		}
	}
	slices.SortStableFunc(waiting, func(a, b *snapshot.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for _, p := range waiting {
		// Preemption victims still occupy the room of a nominated pod. The node's remaining room
		// may become negative, so that no other pod fits.
		if at := nominated[p]; at != nil {
			r.place(p, at, r.classOf(p, decision.Unassigned))
			r.results[query{pod: p}] = result{to: at.Node}
		}
	}
	hopeless, ofNamespace := map[*class]string{}, map[string]int{}
	for _, p := range waiting {
		if nominated[p] != nil || Excessive(p) || ofNamespace[p.Namespace] >= maxHopeless || r.expired() {
			continue
		}
		c := r.classOf(p, decision.Unassigned)
		if why, known := hopeless[c]; known {
			r.results[query{pod: p}] = result{why: why}
		} else if to, why := r.Replace(p, decision.Unassigned); to == nil {
			ofNamespace[p.Namespace]++
			if c.terms == nil && (p.Replacement == nil || !p.Replacement.Workload.Ordered) {
				hopeless[c] = why
			}
		}
	}
}
