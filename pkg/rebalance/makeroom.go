package rebalance

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// makeRoom moves replicas beyond their floors from on-demand to spot where a pod that must have on-demand waits and would then fit, by its requests
// and its cluster.Demand.
//
// The pods that wait are served as the scheduler would: by priority, then the one that waits longest. Of the nodes that could be made to take one
// it is the one with the fewest pods to move, the first by name.
func (r *round) makeRoom() {
	waiters := r.waiters()
	if len(waiters) == 0 {
		return
	}
	c := &clearing{round: r, usable: map[kube.OwnerKey]int{}}
	for _, n := range r.snapshot.Nodes {
		if n.Facts.Capacity.Type == decision.OnDemand {
			c.rooms = append(c.rooms, r.roomOn(n))
		}
	}
	for _, p := range r.snapshot.Pods {
		if p.Node != nil && r.leaves(p) {
			r.places[p] = nil
		}
	}
	for _, w := range waiters {
		if r.full() || r.room.Over() {
			return
		}
		c.serve(w)
	}
}

// waiters returns the pods that found no node and may take on-demand only. One for which others are being preempted has its room already.
func (r *round) waiters() (waiters []*cluster.Pod) {
	for _, p := range r.snapshot.Pods {
		if waits(p) {
			waiters = append(waiters, p)
		}
	}
	slices.SortStableFunc(waiters, func(a, b *cluster.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return waiters
}

// waits reports whether a pod found no node and may take on-demand only.
func waits(p *cluster.Pod) bool {
	defer recovery.Recover(recovery.Pod, klog.KObj(p))
	if p.Spec.NodeName != "" || p.Workload == nil || !p.Workload.Ours || !p.Live() || p.Status.NominatedNodeName != "" || !kube.Unschedulable(p.Pod) || p.Excessive() {
		return false
	}
	plan := decision.NewPlan(&p.Subject.Pod, p.Workload.Settings, p.Revision.Placed, decision.Waiting{})
	return plan.MustHaveOnDemand()
}

// leaves reports whether the room of a pod is about to be free. That of one which may never end is not.
func (r *round) leaves(p *cluster.Pod) bool {
	return (p.ReleasedFrom != nil || p.DeletionTimestamp != nil) && !r.lingers(p)
}

// onDemandRoom is an on-demand node with what is left of it when everything has left that is on its way out.
type onDemandRoom struct {
	*cluster.Node
	left v1.ResourceList
}

func (r *round) roomOn(n *cluster.Node) *onDemandRoom {
	room := &onDemandRoom{n, n.Status.Allocatable.DeepCopy()}
	for _, p := range n.Pods {
		if !r.leaves(p) {
			room.add(p, -1)
		}
	}
	for p, to := range r.places {
		if to == n {
			room.add(p, -1)
		}
	}
	return room
}

// add gives the room that a pod has to the node, or with a sign of -1 takes it.
func (o *onDemandRoom) add(p *cluster.Pod, sign int) {
	for name, request := range p.Requests {
		q := o.left[name]
		if sign < 0 {
			q.Sub(request)
		} else {
			q.Add(request)
		}
		o.left[name] = q
	}
}

// fits reports whether what is left is enough for a pod.
func (o *onDemandRoom) fits(p *cluster.Pod) bool {
	for name, request := range p.Requests {
		if left := o.left[name]; left.Cmp(request) < 0 {
			return false
		}
	}
	return true
}

// clearing is one round of making room.
type clearing struct {
	*round
	rooms []*onDemandRoom
	// usable is how many replicas of a workload may leave on-demand; the workloads of which none may are in it with 0.
	usable map[kube.OwnerKey]int
}

// mayLeave returns how many replicas of a workload may leave on-demand for the sake of a waiting pod.
func (c *clearing) mayLeave(w, waits *cluster.Workload) int {
	n, ok := c.usable[w.Key]
	if !ok {
		// A StatefulSet makes its later pods only when its first ones are ready: those may be the ones that wait.
		if !w.RollingOut && c.free(w, w == waits && w.StatefulSet != nil) {
			n = surplus(w)
		}
		c.usable[w.Key] = n
	}
	return n
}

// serve makes room for one pod, unless there is some or it is being made. All that must leave are asked before the first one does. A workload
// whose replica would not be placed on spot is not asked again, nor is a node on which what leaves would still be in the way where it goes, and
// the next best node is looked for.
func (c *clearing) serve(waits *cluster.Pod) {
	defer recovery.Recover(recovery.Pod, klog.KObj(waits))
	demand := cluster.NewDemand(c.snapshot, waits, c.places)
	for _, room := range c.rooms {
		if room.fits(waits) && demand.Takes(room.Node, nil) {
			c.seat(waits, room)
			return
		}
	}
	useless := map[*onDemandRoom]bool{}
	for pools := c.pools(); ; {
		var best []*cluster.Pod
		var at *onDemandRoom
		for _, room := range c.rooms {
			if useless[room] {
				continue
			}
			if leave := c.leave(room, waits, demand); len(leave) > 0 && (at == nil || len(leave) < len(best)) {
				best, at = leave, room
			}
		}
		if at == nil {
			return
		}
		to := c.ask(best, pools)
		if to == nil {
			continue
		}
		if !demand.Takes(at.Node, to) {
			useless[at] = true
			continue
		}
		for _, p := range best {
			if c.full() || c.moved[p.Workload.Key] {
				continue // it follows in a later round
			}
			c.beginToSpot(p, migration.MakeRoom, to[p], pools[to[p].Facts.Pool])
			at.add(p, 1)
		}
		if at.fits(waits) {
			c.seat(waits, at)
		}
		return
	}
}

// seat gives a pod that waits the room that it has now.
func (c *clearing) seat(waits *cluster.Pod, room *onDemandRoom) {
	room.add(waits, -1)
	c.places[waits] = room.Node
}

// ask returns where pods would be placed on spot; nil unless all of them would.
func (c *clearing) ask(pods []*cluster.Pod, pools map[decision.Pool]time.Time) map[*cluster.Pod]*cluster.Node {
	to := map[*cluster.Pod]*cluster.Node{}
	for _, p := range pods {
		if to[p] = c.spotFor(p, pools, true); to[p] == nil {
			c.usable[p.Workload.Key] = 0
			return nil
		}
	}
	return to
}

// leave returns the pods whose leaving lets the waiting pod onto a node: one if that is enough, else the first that together are; none if all of
// them are not.
func (c *clearing) leave(room *onDemandRoom, waits *cluster.Pod, demand *cluster.Demand) []*cluster.Pod {
	var may []*cluster.Pod
	asked := map[kube.OwnerKey]int{}
	for _, p := range room.Pods {
		if p.Revision == nil || !p.Live() || belowFloor(p) || !spared(p) || !c.mayBecomeSpot(p) || c.moved[p.Workload.Key] || !kube.MayDisrupt(p.Pod, c.now) ||
			c.mayLeave(p.Workload, waits.Workload) == 0 {
			continue
		}
		may = append(may, p)
	}
	c.order(may)
	may = slices.DeleteFunc(may, func(p *cluster.Pod) bool {
		asked[p.Workload.Key]++
		return asked[p.Workload.Key] > c.mayLeave(p.Workload, waits.Workload)
	})
	after := func(leaving ...*cluster.Pod) bool {
		then := &onDemandRoom{room.Node, room.left.DeepCopy()}
		gone := map[*cluster.Pod]*cluster.Node{}
		for _, p := range leaving {
			then.add(p, 1)
			gone[p] = nil
		}
		return then.fits(waits) && demand.Takes(room.Node, gone)
	}
	for _, p := range may {
		if after(p) {
			return []*cluster.Pod{p}
		}
	}
	for n := range may {
		if after(may[:n+1]...) {
			return may[:n+1]
		}
	}
	return nil
}
