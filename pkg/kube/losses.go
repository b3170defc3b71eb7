package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// A spot node counts as lost if the cloud reclaimed it. A node that an autoscaler, an operator or a repair removed does not count. The
// scheduler (risk of pools) and the controller (calm pools, pause of workloads) both decide that with NodeLoss.
//
// In doubt a node counts as lost. A wrong loss costs some spot for a while; a reclaim that does not count sends pods back to a pool that the
// cloud is emptying. Floors do not depend on losses.

// NodeDisruption is how a node is disrupted. If several apply, the largest counts.
type NodeDisruption int8

const (
	// NotDisrupted: nothing announces that the node is removed.
	NotDisrupted NodeDisruption = iota
	// Voluntary: an autoscaler, an operator or a repair removes the node.
	Voluntary
	// Unreachable: the kubelet has been silent for NotReadyAfter, and nobody removes the node.
	Unreachable
	// DeletedFirst: the deletion of the Node began before a taint announced it. See NodeReader.Interrupts.
	DeletedFirst
	// Reclaimed: the cloud announces that it reclaims the node.
	Reclaimed
)

// Disruption returns how node, which is spot, is disrupted at now, as far as the Node shows it. A deletion alone is Voluntary: only the order
// of changes, which NodeEvents report, tells the two apart.
//
// The controller's own taint does not count, because the signal that it repeats is on the Node too, and may be an autoscaler's. Only the
// controller watches the Leases of kubelets: its taint for a silent node is the only trace of that for others.
//
// Whoever removes a node also stops its kubelet, so silence after a Voluntary disruption has begun says nothing.
func (r *NodeReader) Disruption(node *v1.Node, now time.Time) NodeDisruption {
	own := ownMark(node)
	voluntary := node.DeletionTimestamp != nil
	for i := range r.Signals {
		s := &r.Signals[i]
		if s.Class < decision.Drain || !s.onExcept(node, own) {
			continue
		}
		if s.interruption() {
			return Reclaimed
		}
		voluntary = true
	}
	if voluntary {
		return Voluntary
	}
	if gone, silent := r.goneAt(node); silent && !now.Before(gone) || own.Taint == SilenceReason && own.on(node) {
		return Unreachable
	}
	return NotDisrupted
}

// Interrupts reports whether a change of a Node is the beginning of an interruption that the Node itself does not show afterwards. That is
// so with Karpenter (1.14, pkg/controllers/nodeclaim/lifecycle and pkg/controllers/disruption/queue.go): on an interruption it deletes the
// Node and then taints it. Before a voluntary disruption (consolidation, drift) it taints the Node, replaces it, and then deletes it. Its
// finalizer stays on the Node while it drains it. A Node whose NodeClaim expired, was repaired or was deleted by hand changes as on an
// interruption.
//
// If taint and deletion arrive in one event, because the watch was interrupted, their order is unknown: that is an interruption too. The taint
// of another autoscaler is not, because only Karpenter's has two meanings.
func (r *NodeReader) Interrupts(before, after *v1.Node) bool {
	return before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && !r.draining(before, "") && !r.draining(after, karpenterDisrupted)
}

// draining reports whether a signal announces that node is removed, other than a taint with the key except and the controller's own.
func (r *NodeReader) draining(node *v1.Node, except string) bool {
	own := ownMark(node)
	for i := range r.Signals {
		if s := &r.Signals[i]; s.Class >= decision.Drain && (s.Kind != TaintSignal || s.Key != except) && s.onExcept(node, own) {
			return true
		}
	}
	return false
}

// Occupies reports whether pod, which is on node, makes the loss of node a loss of pods: it counts to the policy and is not ending. Pods that
// are ending count on a cordoned node: kubectl drain waits for them, so the node is not drained yet.
func Occupies(pod *v1.Pod, node *v1.Node) bool {
	return HasOpinion(pod) && (Live(pod) || node.Spec.Unschedulable && pod.DeletionTimestamp != nil)
}

// emptiedWithin is how long before its loss a node may have run its last pod. Whoever announces an interruption also empties the node, often
// before anyone looks at it again. AWS, the cloud with the longest usual notice, gives two minutes.
const emptiedWithin = 5 * time.Minute

// NodeLoss decides whether one Node, which must be spot, counts as lost. The zero NodeLoss is that of a Node that was never seen.
type NodeLoss struct {
	ranPods     int64 // when pods were last seen on it, in Unix nanoseconds; 0 for never
	occupied    bool  // at the last look
	seen, noted NodeDisruption
	cordoned    bool // it was when its deletion began
	lost        bool
	counted     bool // it was lost before
}

// Note records what an informer saw of the Node. The next See or Vanish decides.
func (l *NodeLoss) Note(event NodeEvent) {
	l.noted = max(l.noted, event.Disruption)
	l.cordoned = l.cordoned || event.Cordoned
}

// See records a look at the Node at now: how it is disrupted, and whether pods occupy it (Occupies). It reports whether the Node is lost for
// the first time.
func (l *NodeLoss) See(disruption NodeDisruption, occupied bool, now time.Time) (first bool) {
	if l.occupied || occupied {
		l.ranPods = now.UnixNano()
	}
	l.seen, l.occupied = disruption, occupied
	return l.decide(false, now)
}

// Vanish records that the Node does not exist at now any more. It reports whether the Node is lost for the first time.
func (l *NodeLoss) Vanish(now time.Time) (first bool) { return l.decide(true, now) }

// Lost reports whether the Node counted as lost at the last See or Vanish. A Node whose signal was withdrawn does not.
func (l *NodeLoss) Lost() bool { return l.lost }

func (l *NodeLoss) decide(vanished bool, now time.Time) (first bool) {
	emptied := l.ranPods != 0 && now.UnixNano()-l.ranPods <= int64(emptiedWithin)
	switch max(l.seen, l.noted) {
	case NotDisrupted:
		l.lost = vanished && l.occupied
	case Voluntary:
		l.lost = false
	case Unreachable:
		l.lost = l.lost || l.occupied || emptied
	case DeletedFirst:
		l.lost = l.lost || l.occupied || emptied && !l.cordoned // cordoned, drained, deleted: an operator did that
	case Reclaimed:
		l.lost = true // also if it is empty: its pool is being reclaimed
	}
	first = l.lost && !l.counted
	l.counted = l.counted || l.lost
	return first
}
