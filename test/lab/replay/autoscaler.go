package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Autoscaler is a simple model of a cluster autoscaler for on-demand nodes, the same in every arm.
// It adds nodes for pods that a scheduler has reported as unschedulable, and removes empty nodes.
// It does not consolidate nodes. Unlike real autoscalers it trusts the schedulers: it does not
// simulate whether a pod would fit a spot node. Its state changes only in Step.
type Autoscaler struct {
	plan  *Plan
	nodes map[string]*onDemandNode
	// assigned contains the pods for which a node was added, by UID.
	assigned map[string]string
	created  int
}

// onDemandNode is a node of the model.
type onDemandNode struct {
	name, zone string
	up         time.Duration // Ready from this time on
	started    bool          // reported by Step
	emptySince time.Duration // never: it has pods
	// room is what no pod was assigned before the node started.
	room
	number int // in the order of creation
}

// PendingPod is an unschedulable pod that a new on-demand node would help.
type PendingPod struct {
	UID                 string
	CPUMilli, MemoryMiB int64
	// Fresh reports that the autoscaler may not add a node for the pod yet.
	Fresh bool
}

// Actions are the changes that a step of the autoscaler requests.
type Actions struct {
	// Start contains the nodes that are Ready now, with their zones, and Remove the empty nodes.
	Start  []OnDemandNode
	Remove []string
	// Next is the time of the next step, if no pod changes before; never if there is none.
	Next time.Duration
}

// OnDemandNode is a node that the autoscaler starts.
type OnDemandNode struct{ Name, Zone string }

// NewAutoscaler returns an autoscaler without nodes.
func NewAutoscaler(p *Plan) *Autoscaler {
	return &Autoscaler{plan: p, nodes: map[string]*onDemandNode{}, assigned: map[string]string{}}
}

// scanInterval is the trace time for which a pod must be unschedulable before the autoscaler
// considers it: the scan interval of the cluster autoscaler.
const scanInterval = 10 * time.Second

// bindWithin is the time within which a pod must be bound to the node that was added for it. After
// that the autoscaler may add another node.
const bindWithin = time.Minute

// Step advances the model to a time. pods is the number of pods on each node. provisioning is the
// time until a new node is Ready. moving reports that a scheduler may bind a pod to an empty node
// now, so no node is removed.
func (a *Autoscaler) Step(now time.Duration, pending []PendingPod, pods map[string]int, provisioning time.Duration, moving bool) Actions {
	a.release(now, pending)
	a.provision(now, pending, pods, provisioning)
	actions := Actions{Next: never}
	for _, name := range sortedKeys(a.nodes) {
		node := a.nodes[name]
		if !node.started {
			if node.up > now {
				actions.Next = min(actions.Next, node.up)
				continue
			}
			node.started, node.emptySince = true, now
			actions.Start = append(actions.Start, OnDemandNode{Name: name, Zone: node.zone})
		}
		switch {
		case pods[name] > 0:
			node.emptySince = never
		case node.emptySince == never:
			node.emptySince = now
		}
		if node.emptySince == never {
			continue
		}
		removal := max(node.emptySince, node.up) + a.plan.Settings.EmptyAfter
		if removal > now || moving || a.waitedFor(name) {
			actions.Next = min(actions.Next, max(removal, now+time.Second))
			continue
		}
		delete(a.nodes, name)
		actions.Remove = append(actions.Remove, name)
	}
	for _, name := range a.assigned {
		if node := a.nodes[name]; node.started {
			actions.Next = min(actions.Next, node.up+bindWithin)
		}
	}
	return actions
}

// Retry ends all assignments to nodes that have started. So the next step may add nodes for pods
// that were not bound, although no time has passed.
func (a *Autoscaler) Retry() {
	maps.DeleteFunc(a.assigned, func(_, name string) bool { return a.nodes[name] == nil || a.nodes[name].started })
}

// release ends the assignments of pods that are not pending or were not bound in time.
func (a *Autoscaler) release(now time.Duration, pending []PendingPod) {
	isPending := map[string]bool{}
	for _, pod := range pending {
		isPending[pod.UID] = true
	}
	for uid, name := range a.assigned {
		node := a.nodes[name]
		if !isPending[uid] || node == nil || node.started && now >= node.up+bindWithin {
			delete(a.assigned, uid)
		}
	}
}

// waitedFor reports whether a pending pod is assigned to the node.
func (a *Autoscaler) waitedFor(name string) bool {
	for _, node := range a.assigned {
		if node == name {
			return true
		}
	}
	return false
}

// provision adds nodes for pods without an assigned node, by first fit decreasing. If a started
// node is empty and unassigned, further nodes would not help either.
func (a *Autoscaler) provision(now time.Duration, pending []PendingPod, pods map[string]int, provisioning time.Duration) {
	for name, node := range a.nodes {
		if node.started && pods[name] == 0 && !a.waitedFor(name) {
			return
		}
	}
	var waiting []PendingPod
	for _, pod := range pending {
		if a.assigned[pod.UID] == "" && !pod.Fresh {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, func(x, y PendingPod) int {
		return cmp.Or(cmp.Compare(y.MemoryMiB, x.MemoryMiB), cmp.Compare(y.CPUMilli, x.CPUMilli), cmp.Compare(x.UID, y.UID))
	})
	var starting []*onDemandNode
	for _, node := range a.nodes {
		if !node.started {
			starting = append(starting, node)
		}
	}
	slices.SortFunc(starting, func(x, y *onDemandNode) int { return cmp.Compare(x.number, y.number) })
	for _, pod := range waiting {
		at := slices.IndexFunc(starting, func(n *onDemandNode) bool { return n.fits(pod.CPUMilli, pod.MemoryMiB) })
		if at < 0 {
			starting = append(starting, a.add(now+provisioning))
			at = len(starting) - 1
		}
		starting[at].use(pod.CPUMilli, pod.MemoryMiB)
		a.assigned[pod.UID] = starting[at].name
	}
}

// add adds a node that is Ready at a time. The zones take turns.
func (a *Autoscaler) add(up time.Duration) *onDemandNode {
	a.created++
	node := &onDemandNode{
		name: fmt.Sprintf("on-demand-%d", a.created), zone: a.plan.Zones[(a.created-1)%len(a.plan.Zones)],
		number: a.created, up: up, emptySince: never, room: a.plan.newRoom(),
	}
	a.nodes[node.name] = node
	return node
}

// room is the free part of a node.
type room struct {
	cpuMilli, memoryMiB int64
	pods                int
}

// newRoom returns the room of an empty node.
func (p *Plan) newRoom() room {
	return room{cpuMilli: p.Node.CPUMilli, memoryMiB: p.Node.MemoryMiB, pods: p.maxPods()}
}

// fits reports whether a pod with these requests fits.
func (r *room) fits(cpuMilli, memoryMiB int64) bool {
	return r.cpuMilli >= cpuMilli && r.memoryMiB >= memoryMiB && r.pods >= 1
}

// use takes the room of a pod.
func (r *room) use(cpuMilli, memoryMiB int64) {
	r.cpuMilli -= cpuMilli
	r.memoryMiB -= memoryMiB
	r.pods--
}
