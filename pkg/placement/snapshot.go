package placement

import (
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// snapshotPosition is a node of the last snapshot with its generation at that time. UpdateNodes
// compares the generations of all nodes. They are contiguous in memory because following one
// pointer per node would take most of the time.
type snapshotPosition struct {
	generation int64
	node       *nodeState
}

// Update synchronizes the facts and counts with snapshot, which must list all nodes of the
// scheduler's snapshot. Facts that depend on time are evaluated at now.
func (c *Counter) Update(snapshot []fwk.NodeInfo, now time.Time) {
	c.UpdateNodes(snapshot, now)
	c.countPods()
}

// UpdateNodes is like Update but counts no pods: until the next Update, Placed and States may be
// out of date. That suffices for a pod without a controller, which has no siblings, and is faster.
func (c *Counter) UpdateNodes(snapshot []fwk.NodeInfo, now time.Time) {
	c.readEvents()
	nanos := now.UnixNano()
	due := nanos >= c.nextChange
	moved := len(snapshot) != len(c.order)
	for i, info := range snapshot {
		// A generation is assigned once, to one state of one node (nextGeneration in
		// pkg/scheduler/framework/types.go of Kubernetes). Only equality is compared, because a
		// restored snapshot has an older generation.
		if !due && i < len(c.order) && c.order[i].generation == info.GetGeneration() {
			continue
		}
		n := c.node(info.Node().Name)
		if n.generation != info.GetGeneration() || nanos >= n.until {
			n.info, n.generation = snapshotInfo{info}, info.GetGeneration()
			c.read(n, now)
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
		c.findNextChange()
	}
}

// reorder applies the order of snapshot and removes the nodes that are not in it.
func (c *Counter) reorder(snapshot []fwk.NodeInfo, now time.Time) {
	c.order = slices.Grow(c.order[:0], len(snapshot))
	for _, info := range snapshot {
		n := c.nodes[info.Node().Name]
		n.seen = true
		c.order = append(c.order, snapshotPosition{n.generation, n})
	}
	clear(c.order[len(c.order):cap(c.order)])
	for _, n := range c.nodes {
		if n.seen {
			n.seen = false
			continue
		}
		c.remove(n, now)
	}
	c.stale = slices.DeleteFunc(c.stale, func(n *nodeState) bool { return n.pool == nil }) // removed
}

type snapshotInfo struct{ fwk.NodeInfo }

func (n snapshotInfo) Pods() iter.Seq[*v1.Pod] {
	return func(yield func(*v1.Pod) bool) {
		for _, info := range n.GetPods() {
			if !yield(info.GetPod()) {
				return
			}
		}
	}
}

func (n snapshotInfo) Free() workload.Resources {
	has, used := n.GetAllocatable(), n.GetRequested()
	free := workload.Resources{
		MilliCPU: has.GetMilliCPU() - used.GetMilliCPU(), Memory: has.GetMemory() - used.GetMemory(),
		EphemeralStorage: has.GetEphemeralStorage() - used.GetEphemeralStorage(),
		Pods:             int64(has.GetAllowedPodNumber() - len(n.GetPods())),
	}
	for name, amount := range has.GetScalarResources() {
		// Most nodes list huge pages but have none, and need no map.
		if amount -= used.GetScalarResources()[name]; amount > 0 {
			if free.Others == nil {
				free.Others = map[v1.ResourceName]int64{}
			}
			free.Others[name] = amount
		}
	}
	return free
}

// HasPod reports whether the snapshot contains the pod on the node, where the Counter counts it. An
// assumed pod may still be nominated.
func HasPod(node fwk.NodeInfo, pod types.UID) bool { return hasPod(snapshotInfo{node}, pod) }

func hasPod(node NodeInfo, pod types.UID) bool {
	for other := range node.Pods() {
		if other.UID == pod {
			return true
		}
	}
	return false
}
