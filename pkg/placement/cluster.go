package placement

import (
	"iter"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Cluster feeds a Counter with the events of informers, for a program without a scheduler's
// snapshot. Events only record which nodes changed, and Refresh reads them. It is not safe for
// concurrent use.
type Cluster struct {
	*Counter
	byName  map[string]*clusterNode
	changed []*clusterNode
	bound   map[types.UID]struct{}
}

type clusterNode struct {
	name    string
	object  *v1.Node // nil if only pods on the node are known
	pods    map[types.UID]*v1.Pod
	changed bool // it is in Cluster.changed
}

// NewCluster returns a Cluster without nodes that reads nodes with reader.
func NewCluster(reader *node.Reader) *Cluster {
	return &Cluster{Counter: NewCounter(reader), byName: map[string]*clusterNode{}, bound: map[types.UID]struct{}{}}
}

// SetNode adds or updates a node.
func (c *Cluster) SetNode(object *v1.Node) {
	n := c.nodeNamed(object.Name)
	n.object = object
	c.markChanged(n)
}

// DeleteNode removes a node. Its pods no longer count, even if they are not deleted yet.
func (c *Cluster) DeleteNode(name string) {
	n := c.nodeNamed(name)
	n.object = nil
	c.markChanged(n)
}

// SetPod processes the change of a pod from before to after. before is nil for a new pod, after for
// a deleted pod.
func (c *Cluster) SetPod(before, after *v1.Pod) {
	changed := !countsAlike(before, after)
	if before != nil && before.Spec.NodeName != "" {
		n := c.nodeNamed(before.Spec.NodeName)
		delete(n.pods, before.UID)
		delete(c.bound, before.UID)
		if changed && n.object != nil {
			c.markChanged(n)
		}
		defer c.forgetUnused(n)
	}
	if after != nil && after.Spec.NodeName != "" {
		n := c.nodeNamed(after.Spec.NodeName)
		n.pods[after.UID] = after
		c.bound[after.UID] = struct{}{}
		if changed && n.object != nil {
			c.markChanged(n)
		}
	}
}

// countsAlike reports whether a change of a pod has no effect on the counts. Most changes are of
// the status. A change of the requests in place counts when the node is next read.
func countsAlike(before, after *v1.Pod) bool {
	return before != nil && after != nil && before.UID == after.UID && before.Spec.NodeName == after.Spec.NodeName &&
		workload.Live(before) == workload.Live(after) && workload.RevisionOf(before) == workload.RevisionOf(after)
}

func (c *Cluster) nodeNamed(name string) *clusterNode {
	n := c.byName[name]
	if n == nil {
		n = &clusterNode{name: name, pods: map[types.UID]*v1.Pod{}}
		c.byName[name] = n
	}
	return n
}

// forgetUnused removes a node without an object after its last pod. Tenants may create pods with
// the names of such nodes, and Refresh may never be called.
func (c *Cluster) forgetUnused(n *clusterNode) {
	if n.object == nil && len(n.pods) == 0 && !n.changed {
		delete(c.byName, n.name)
	}
}

func (c *Cluster) markChanged(n *clusterNode) {
	if !n.changed {
		n.changed = true
		c.changed = append(c.changed, n)
	}
}

// Refresh reads the nodes that have changed, or whose facts have changed at now.
func (c *Cluster) Refresh(now time.Time) {
	for _, n := range c.changed {
		n.changed = false
		counted := c.nodes[n.name]
		if n.object != nil {
			counted = c.node(n.name)
			counted.info = n
			c.read(counted, now)
			continue
		}
		if counted != nil {
			c.remove(counted, now)
		}
		c.forgetUnused(n)
	}
	clear(c.changed)
	c.changed = c.changed[:0]
	if nanos := now.UnixNano(); nanos >= c.nextChange {
		for _, n := range c.nodes {
			if nanos >= n.until {
				c.read(n, now)
			}
		}
		c.findNextChange()
	}
	c.countPods()
}

// HasNode reports whether a node is known.
func (c *Cluster) HasNode(name string) bool {
	n := c.byName[name]
	return n != nil && n.object != nil
}

// IsBound reports whether a pod is bound.
func (c *Cluster) IsBound(pod types.UID) bool {
	_, bound := c.bound[pod]
	return bound
}

func (n *clusterNode) Node() *v1.Node          { return n.object }
func (n *clusterNode) Pods() iter.Seq[*v1.Pod] { return maps.Values(n.pods) }

func (n *clusterNode) Free() workload.Resources {
	free := workload.ResourcesOf(n.object.Status.Allocatable)
	for _, pod := range n.pods {
		free.Add(workload.RequestsOf(pod), -1)
	}
	return free
}
