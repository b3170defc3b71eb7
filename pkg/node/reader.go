// Package node converts Nodes into the values that package decision uses: capacity type, pool and
// interruption signals. It also decides whether a node was lost to its cloud. It makes no policy
// decisions.
package node

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// NotReadyReclaimAfter is how long the kubelet of a spot node must be unreachable until the node
// counts as lost. The node monitor grace period of the controller manager was 40 s for years. A
// spot node that is unreachable for longer is more likely reclaimed than slow.
const NotReadyReclaimAfter = 40 * time.Second

// Reader converts Nodes into decision values. Its fields do not change after it is built.
type Reader struct {
	Policy  *decision.Policy
	Signals []providers.Signal
	// NotReadyAfter is how long the kubelet of a spot node must be unreachable until the node
	// counts as lost; 0 means NotReadyReclaimAfter.
	NotReadyAfter time.Duration
	// Overdue contains the nodes whose Lease is overdue, as returned by LiveReader. If it is nil,
	// only the condition Ready counts.
	Overdue map[string]time.Time
	// Unconfirmed contains the nodes whose kubelet seems unreachable, but that do not count as lost
	// yet, as returned by LiveReader. If it is nil, no node needs a confirmation.
	Unconfirmed map[string]bool
}

// Capacity returns the capacity type of the node at now. Without a capacity label, a signal that
// only spot nodes get proves spot.
func (r *Reader) Capacity(node *v1.Node, now time.Time) decision.Capacity {
	capacity := r.Policy.Capacity(node.Labels, now.Sub(node.CreationTimestamp.Time))
	if !capacity.Labeled() && capacity.Type == decision.OnDemand && providers.SpotNotice(r.Signals, node) != nil {
		return decision.Capacity{Type: decision.Spot, Source: decision.FromSignal}
	}
	return capacity
}

// Read returns the facts about the node that a decision at now needs. until is the time at which
// the facts change although the Node does not; zero means never.
func (r *Reader) Read(node *v1.Node, now time.Time) (facts decision.Node, until time.Time) {
	facts.Capacity = r.Capacity(node, now)
	if facts.Capacity.Source == decision.Settling {
		until = node.CreationTimestamp.Add(r.Policy.LabelGrace)
	}
	facts.Zone = node.Labels[v1.LabelTopologyZone]
	facts.Pool = decision.NewPool(node.Labels[v1.LabelInstanceTypeStable], facts.Zone)
	for _, a := range r.Announcements(node, facts.Capacity.Type, now) {
		facts.Signal = max(facts.Signal, a.Class)
	}
	if facts.Capacity.Type == decision.Spot && facts.Signal < decision.Reclaim {
		if lostAt, unreachable := r.lostAt(node); unreachable {
			until = Earlier(until, lostAt)
		}
	}
	return facts, until
}

// Announcement is a fact on a Node that announces that the node is, or may be, about to be
// reclaimed or drained.
type Announcement struct {
	// Name is the Signal.String of a signal of the table, Deletion or UnreachableKubelet.
	Name  string
	Class decision.SignalClass
	// Since is when the announcement appeared; zero if the Node does not record it.
	Since time.Time
	// Notice is how much time was left at Since. It is meaningful only if Timed.
	Notice time.Duration
	// Timed reports whether Notice is known.
	Timed bool
	// Signal is the signal of the table; nil for Deletion and UnreachableKubelet.
	Signal *providers.Signal
}

// The names of announcements that are not signals of the table.
const (
	// Deletion: the Node has a deletionTimestamp.
	Deletion = "deletion"
	// UnreachableKubelet: the node is spot, and its kubelet has been unreachable for NotReadyAfter
	// (see KubeletUnreachable). The notice is 0, because the node may already be gone.
	UnreachableKubelet = "condition Ready"
)

// Announcements returns the announcements on a node of this capacity type at now: signals in the
// order of the table, then Deletion, then UnreachableKubelet.
func (r *Reader) Announcements(node *v1.Node, capacity decision.CapacityType, now time.Time) (all []Announcement) {
	for i := range r.Signals {
		s := &r.Signals[i]
		if since, on := s.PresentSince(node); on {
			all = append(all, Announcement{Name: s.String(), Class: classOn(s, node, capacity), Since: since,
				Notice: s.Notice, Timed: s.Notice > 0, Signal: s})
		}
	}
	if node.DeletionTimestamp != nil {
		all = append(all, Announcement{Name: Deletion, Class: decision.Drain, Since: node.DeletionTimestamp.Time})
	}
	if lostAt, unreachable := r.lostAt(node); unreachable && capacity == decision.Spot && !now.Before(lostAt) {
		all = append(all, Announcement{Name: UnreachableKubelet, Class: decision.Reclaim, Since: lostAt, Timed: true})
	}
	return all
}

// lostAt returns when a spot node with an unreachable kubelet counts as lost. It returns false if
// the kubelet is not unreachable, or if this must be confirmed first.
func (r *Reader) lostAt(node *v1.Node) (time.Time, bool) {
	since, unreachable := r.KubeletUnreachable(node)
	return since.Add(r.LostAfter()), unreachable && !r.Unconfirmed[node.Name]
}

// LostAfter returns how long the kubelet of a spot node must be unreachable until the node counts
// as lost.
func (r *Reader) LostAfter() time.Duration { return cmp.Or(r.NotReadyAfter, NotReadyReclaimAfter) }

// KubeletUnreachable reports whether the node's kubelet is unreachable, and since when: the
// condition Ready is Unknown, or the Lease is overdue. A kubelet that reports Ready=False is alive.
// A node without the condition has not reported yet.
func (r *Reader) KubeletUnreachable(node *v1.Node) (since time.Time, unreachable bool) {
	_, ready := nodeutil.GetNodeCondition(&node.Status, v1.NodeReady)
	if ready == nil {
		return time.Time{}, false
	}
	at, overdue := r.Overdue[node.Name]
	switch since = ready.LastTransitionTime.Time; {
	case ready.Status != v1.ConditionUnknown:
		return at, overdue
	case overdue && at.Before(since):
		since = at
	}
	return since, true
}

// Ready reports whether the kubelet of the node has reported that it is ready.
func Ready(node *v1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, v1.NodeReady)
	return ready != nil && ready.Status == v1.ConditionTrue
}

// Earlier returns the earlier of two times. Zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
