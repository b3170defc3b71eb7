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
	// NotReadyAfter is for how long nothing must be heard of a spot node's kubelet for the node to count as lost; 0 means NotReadyReclaimAfter.
	NotReadyAfter time.Duration
	// Overdue are the nodes whose Lease is overdue, as of Heartbeats. nil: only the condition Ready counts.
	Overdue map[string]time.Time
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
		if gone, silent := r.goneAt(node); silent {
			if now.Before(gone) {
				until = Earlier(until, gone)
			} else {
				facts.Signal = decision.Reclaim
			}
		}
	}
	return facts, until
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
	// Silence: the node is spot, and nothing has been heard of its kubelet for NotReadyAfter (Unheard). It may already be gone, so no time is left.
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
	if gone, silent := r.goneAt(node); silent && capacity == decision.Spot && !now.Before(gone) {
		all = append(all, Announcement{Name: Silence, Class: decision.Reclaim, Since: gone, Timed: true})
	}
	return all
}

// goneAt returns when a node whose kubelet is silent counts as lost, if it is spot; false if the kubelet is not silent.
func (r *NodeReader) goneAt(node *v1.Node) (time.Time, bool) {
	after := r.NotReadyAfter
	if after == 0 {
		after = NotReadyReclaimAfter
	}
	since, silent := r.Unheard(node)
	return since.Add(after), silent
}

// Unheard returns since when nothing has been heard of node's kubelet, and whether that is so: the condition Ready is Unknown, or the Lease is
// overdue. A kubelet that reports Ready=False is alive. A node without the condition has not reported yet.
func (r *NodeReader) Unheard(node *v1.Node) (since time.Time, silent bool) {
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != v1.NodeReady {
			continue
		}
		at, overdue := r.Overdue[node.Name]
		switch since = c.LastTransitionTime.Time; {
		case c.Status != v1.ConditionUnknown:
			return at, overdue
		case overdue && at.Before(since):
			since = at
		}
		return since, true
	}
	return time.Time{}, false
}

// Earlier returns the earlier of two times, of which zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
