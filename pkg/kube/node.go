package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// NodeReader reads Nodes into decision values. Its fields are not changed after it is built.
type NodeReader struct {
	Policy  *decision.Policy
	Signals []Signal
	// NotReadyAfter is how long a spot node must have been not ready to count as being reclaimed; 0 means NotReadyReclaimAfter.
	NotReadyAfter time.Duration
}

// Read returns what a decision at now needs to know of node, and when that will change although the Node does not (zero: never).
// othersLabeled is as in Policy.Capacity.
func (r *NodeReader) Read(node *v1.Node, othersLabeled bool, now time.Time) (facts decision.Node, until time.Time) {
	age := now.Sub(node.CreationTimestamp.Time)
	facts.Capacity = r.Policy.Capacity(node.Labels, age, othersLabeled)
	if facts.Capacity.Source == decision.Settling {
		until = node.CreationTimestamp.Add(r.Policy.LabelGrace)
	}
	facts.Pool = decision.NewPool(node.Labels[v1.LabelInstanceTypeStable], node.Labels[v1.LabelTopologyZone])
	if node.DeletionTimestamp != nil {
		facts.Signal = decision.Drain
	}
	for i := range r.Signals {
		if s := &r.Signals[i]; s.classOn(facts.Capacity.Type) > facts.Signal && s.on(node) {
			facts.Signal = s.classOn(facts.Capacity.Type)
		}
	}
	if facts.Capacity.Type == decision.Spot && facts.Signal < decision.Reclaim {
		if gone, down := r.goneAt(node); down {
			if now.Before(gone) {
				until = earlier(until, gone)
			} else {
				facts.Signal = decision.Reclaim
			}
		}
	}
	return facts, until
}

// Interrupted reports whether node, which is spot, says at now that the cloud takes it back: by a signal of an interruption, or by silence.
// Whoever drains a node for another reason also stops it, so the silence of a drained node says nothing.
func (r *NodeReader) Interrupted(node *v1.Node, now time.Time) bool {
	drained := node.DeletionTimestamp != nil
	for i := range r.Signals {
		s := &r.Signals[i]
		if s.Class < decision.Drain || !s.on(node) {
			continue
		}
		if s.interruption() {
			return true
		}
		drained = true
	}
	gone, down := r.goneAt(node)
	return down && !drained && !now.Before(gone)
}

// Interrupts reports whether a change of a Node is the beginning of an interruption that the Node itself does not show afterwards. That is
// so with Karpenter: on an interruption it deletes the Node and then taints it; before all that it does by choice, such as consolidation,
// it taints the Node, replaces it, and then deletes it. Its finalizer stays on the Node while it empties it.
func (r *NodeReader) Interrupts(before, after *v1.Node) bool {
	return before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && !r.draining(before) && !r.draining(after)
}

// draining reports whether a signal says that node goes.
func (r *NodeReader) draining(node *v1.Node) bool {
	for i := range r.Signals {
		if s := &r.Signals[i]; s.Class >= decision.Drain && s.on(node) {
			return true
		}
	}
	return false
}

// Announcement is one thing that says that a node goes, or may go.
type Announcement struct {
	// Name is Signal.String of a signal of the table, Deletion or Silence.
	Name  string
	Class decision.SignalClass
	// Since is when it appeared; zero if the Node does not say.
	Since time.Time
	// Notice is how much time was left then; meaningful if Timed.
	Notice time.Duration
	// Timed: Notice is known.
	Timed bool
}

// The names of what announces that a node goes without being a signal of the table.
const (
	// Deletion: the Node has a deletionTimestamp.
	Deletion = "deletion"
	// Silence: the node is spot, and has not been ready for NotReadyAfter. It may already be gone, so no time is left.
	Silence = "condition Ready"
)

// Announced returns what announces at now that a node of this capacity type goes: signals in the order of the table, then Deletion, then
// Silence. The largest of their classes is the Signal that Read returns for the node.
func (r *NodeReader) Announced(node *v1.Node, capacity decision.CapacityType, now time.Time) (all []Announcement) {
	for i := range r.Signals {
		s := &r.Signals[i]
		if since, on := s.since(node); on {
			all = append(all, Announcement{s.String(), s.classOn(capacity), since, s.Notice, s.Notice > 0})
		}
	}
	if node.DeletionTimestamp != nil {
		all = append(all, Announcement{Name: Deletion, Class: decision.Drain, Since: node.DeletionTimestamp.Time})
	}
	if gone, down := r.goneAt(node); down && capacity == decision.Spot && !now.Before(gone) {
		all = append(all, Announcement{Name: Silence, Class: decision.Reclaim, Since: gone, Timed: true})
	}
	return all
}

// goneAt returns when a node that is not ready counts as gone, if it is spot; false if it is ready.
func (r *NodeReader) goneAt(node *v1.Node) (time.Time, bool) {
	after := r.NotReadyAfter
	if after == 0 {
		after = NotReadyReclaimAfter
	}
	since, down := notReadySince(node)
	return since.Add(after), down
}

// notReadySince returns since when node has been known not to be ready. A node without a Ready condition has not reported yet.
func notReadySince(node *v1.Node) (time.Time, bool) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.LastTransitionTime.Time, c.Status != v1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
