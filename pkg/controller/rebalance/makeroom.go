package rebalance

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// makeRoom moves replicas beyond their floors from on-demand to spot if an unschedulable pod that
// needs on-demand then fits, by its requests and its simulation.Demand.
//
// The waiting pods are served in the order of the scheduler: by priority, then by waiting time. Of
// the suitable nodes, makeRoom chooses the one with the fewest pods to move, then the first by
// name.
func (r *round) makeRoom() {
	waiting := r.waitingPods()
	if len(waiting) == 0 {
		return
	}
	c := &roomPlanner{round: r, movable: map[workload.OwnerKey]int{}}
	for _, n := range r.snapshot.Nodes {
		if n.Facts.Capacity.Type == decision.OnDemand {
			c.onDemand = append(c.onDemand, r.newOnDemandNode(n))
		}
	}
	for _, p := range r.snapshot.Pods {
		if p.Node != nil && r.leaving(p) {
			r.placements[p] = nil
		}
	}
	for _, w := range waiting {
		if r.limitReached() || r.room.Expired() {
			return
		}
		recovery.Guard(recovery.Pod, klog.KObj(w), func() { c.makeRoomFor(w) })
	}
}

// waitingPods returns the unschedulable pods that may run on on-demand only. A pod with a nominated
// node is excluded: preemption makes room for it.
func (r *round) waitingPods() (waiting []*snapshot.Pod) {
	for _, p := range r.snapshot.Pods {
		recovery.Guard(recovery.Pod, klog.KObj(p), func() {
			if waitsForOnDemand(p) {
				waiting = append(waiting, p)
			}
		})
	}
	slices.SortStableFunc(waiting, func(a, b *snapshot.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return waiting
}

func waitsForOnDemand(p *snapshot.Pod) bool {
	if p.Spec.NodeName != "" || p.Workload == nil || !p.Workload.InScope || !p.Live() || p.Status.NominatedNodeName != "" ||
		!workload.Unschedulable(p.Pod) || simulation.Excessive(p) {
		return false
	}
	plan := decision.NewPlan(&p.Subject.Pod, p.Workload.Settings, p.Revision.Placed, decision.WaitTime{})
	return plan.RequiresOnDemand()
}

// leaving reports whether a pod will soon free its room. A pod that may never end is not leaving.
func (r *round) leaving(p *snapshot.Pod) bool {
	return (p.ReleasedFrom != nil || p.DeletionTimestamp != nil) && !r.endsLate(p)
}

// onDemandNode is an on-demand node with the resources that are free after all leaving pods have
// ended.
type onDemandNode struct {
	*snapshot.Node
	free workload.Resources
}

func (r *round) newOnDemandNode(n *snapshot.Node) *onDemandNode {
	node := &onDemandNode{n, n.Free(func(p *snapshot.Pod) bool { return !r.leaving(p) })}
	for p, to := range r.placements {
		if to == n {
			node.free.Add(p.Requests, -1)
		}
	}
	return node
}

func (o *onDemandNode) fits(p *snapshot.Pod) bool {
	needs := workload.ResourcesOf(p.Requests)
	return o.free.Covers(&needs)
}

type roomPlanner struct {
	*round
	onDemand []*onDemandNode
	// movable is the number of replicas of a workload that may leave on-demand. Workloads without
	// such replicas have the value 0.
	movable map[workload.OwnerKey]int
}

func (c *roomPlanner) movableReplicas(w, waiting *snapshot.Workload) int {
	n, ok := c.movable[w.Key]
	if !ok {
		// A StatefulSet creates its later pods only after its first pods are ready, and the waiting
		// pods may be the first ones.
		if c.mayMove(w, migration.MakeRoom, w == waiting && w.StatefulSet != nil) {
			n = w.FloorStatus().Surplus
		}
		c.movable[w.Key] = n
	}
	return n
}

// makeRoomFor makes room for one pod, unless there is room or room is being made. It finds
// placements for all pods that must leave before the first one moves. If a replica would not be
// placed on spot, it excludes the workload of that replica. If a leaving pod would also exclude the
// waiting pod from its new place, it excludes the node. In both cases it tries the next best node.
func (c *roomPlanner) makeRoomFor(waiting *snapshot.Pod) {
	demand := simulation.NewDemand(c.snapshot, waiting, c.placements)
	for _, node := range c.onDemand {
		if node.fits(waiting) && demand.Fits(node.Node, nil) {
			c.reserve(waiting, node)
			return
		}
	}
	useless := map[*onDemandNode]bool{}
	for pools := c.poolsCalmSince(); ; {
		var best []*snapshot.Pod
		var target *onDemandNode
		for _, node := range c.onDemand {
			if useless[node] {
				continue
			}
			if leaving := c.podsToMove(node, waiting, demand); len(leaving) > 0 && (target == nil || len(leaving) < len(best)) {
				best, target = leaving, node
			}
		}
		if target == nil {
			return
		}
		to := c.spotPlacements(best, pools)
		if to == nil {
			continue
		}
		if !demand.Fits(target.Node, to) {
			useless[target] = true
			continue
		}
		for _, p := range best {
			if c.limitReached() || c.moved[unitOf(p.Workload)] {
				continue // it moves in a later round
			}
			c.addMoveToSpot(p, migration.MakeRoom, to[p], pools[to[p].Facts.Pool])
			target.free.Add(p.Requests, 1)
		}
		if target.fits(waiting) {
			c.reserve(waiting, target)
		}
		return
	}
}

func (c *roomPlanner) reserve(waiting *snapshot.Pod, node *onDemandNode) {
	node.free.Add(waiting.Requests, -1)
	c.placements[waiting] = node.Node
}

// spotPlacements returns the placements of pods on spot; nil unless all pods have one and may move.
func (c *roomPlanner) spotPlacements(pods []*snapshot.Pod, pools map[decision.Pool]time.Time) map[*snapshot.Pod]*snapshot.Node {
	to := map[*snapshot.Pod]*snapshot.Node{}
	for _, p := range pods {
		if !c.isLimited(p, migration.MakeRoom) {
			to[p], _ = c.spotFor(p, pools, true)
		}
		if to[p] == nil {
			c.movable[p.Workload.Key] = 0
			return nil
		}
	}
	return to
}

// podsToMove returns the pods that must leave a node so that the waiting pod can run there. It
// returns one pod if that is enough, else the shortest sufficient prefix of the candidates. It
// returns none if all candidates together are not enough.
func (c *roomPlanner) podsToMove(node *onDemandNode, waiting *snapshot.Pod, demand *simulation.Demand) []*snapshot.Pod {
	candidates := slices.DeleteFunc(slices.Clone(node.Pods), func(p *snapshot.Pod) bool {
		return p.Revision == nil || !p.Live() || inFloor(p) || !othersReady(p) || !c.mayBecomeSpot(p) || c.moved[unitOf(p.Workload)] ||
			!workload.MayDisrupt(p.Pod, c.now) || c.movableReplicas(p.Workload, waiting.Workload) == 0
	})
	c.sortCandidates(candidates)
	perWorkload := map[workload.OwnerKey]int{}
	candidates = slices.DeleteFunc(candidates, func(p *snapshot.Pod) bool {
		perWorkload[p.Workload.Key]++
		return perWorkload[p.Workload.Key] > c.movableReplicas(p.Workload, waiting.Workload)
	})
	sufficient := func(leaving ...*snapshot.Pod) bool {
		emptied := &onDemandNode{node.Node, *node.free.Clone()}
		absent := map[*snapshot.Pod]*snapshot.Node{}
		for _, p := range leaving {
			emptied.free.Add(p.Requests, 1)
			absent[p] = nil
		}
		return emptied.fits(waiting) && demand.Fits(node.Node, absent)
	}
	for _, p := range candidates {
		if sufficient(p) {
			return []*snapshot.Pod{p}
		}
	}
	for n := range candidates {
		if sufficient(candidates[:n+1]...) {
			return candidates[:n+1]
		}
	}
	return nil
}
