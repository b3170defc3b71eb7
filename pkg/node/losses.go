package node

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// A spot node counts as lost if the cloud reclaimed it. It does not count as lost if an autoscaler,
// an operator or a repair removed it. LossDetector decides this for both the scheduler (risk of
// spot pools) and the controller (calm pools, pause of workloads).
//
// In doubt, a node counts as lost. A false loss only reduces the use of spot for a while. A missed
// reclaim sends pods back to a spot pool that the cloud is emptying. Floors do not depend on
// losses.

// Disruption is the way in which a node is disrupted. If several apply, the largest value
// counts.
type Disruption int8

const (
	// NotDisrupted means that no signal announces the removal of the node.
	NotDisrupted Disruption = iota
	// Voluntary means that an autoscaler, an operator or a repair removes the node.
	Voluntary
	// Unreachable means that the kubelet has been unreachable for NotReadyAfter, and no actor
	// removes the node.
	Unreachable
	// DeletedFirst means that the Node was deleted before a taint announced the deletion. See
	// Reader.BeginsInterruption.
	DeletedFirst
	// Reclaimed means that the cloud has announced that it reclaims the node.
	Reclaimed
)

// Disruption returns how the spot node is disrupted at now, as far as the Node object shows it. A
// deletion alone is Voluntary. Only the order of changes distinguishes it from an interruption;
// Events report that order.
//
// Disruption ignores the controller's own taint. The taint repeats a signal that is also on the
// Node, and that signal may come from an autoscaler. The exception is the taint for an unreachable
// kubelet. Only the controller watches the Leases of kubelets, so other programs have no other
// trace of it.
//
// The actor that removes a node also stops its kubelet. An unreachable kubelet after the start of a
// Voluntary disruption therefore proves nothing.
func (r *Reader) Disruption(node *v1.Node, now time.Time) Disruption {
	own := readControllerMark(node)
	voluntary := node.DeletionTimestamp != nil
	for i := range r.Signals {
		s := &r.Signals[i]
		if s.Class < decision.Drain || !hasForeignSignal(s, node, own) {
			continue
		}
		if s.IsInterruption() {
			return Reclaimed
		}
		voluntary = true
	}
	if voluntary {
		return Voluntary
	}
	if lostAt, unreachable := r.lostAt(node); unreachable && !now.Before(lostAt) || own.Taint == UnreachableReason && own.isOn(node) {
		return Unreachable
	}
	return NotDisrupted
}

// BeginsInterruption reports whether a change of a Node begins an interruption that the Node object
// does not show afterwards. Karpenter causes such changes (1.14,
// pkg/controllers/nodeclaim/lifecycle and pkg/controllers/disruption/queue.go). On an interruption,
// Karpenter deletes the Node and then taints it. Before a voluntary disruption (consolidation,
// drift), Karpenter taints the Node, replaces it, and then deletes it. Karpenter's finalizer stays
// on the Node during the drain. A Node whose NodeClaim expired, was repaired or was deleted by a
// user changes as on an interruption.
//
// If the taint and the deletion arrive in one event because the watch was interrupted, their order
// is unknown, and the change counts as an interruption. The taints of other autoscalers do not
// count, because only Karpenter's taint has two meanings.
func (r *Reader) BeginsInterruption(before, after *v1.Node) bool {
	return before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && !r.isDraining(before, "") &&
		!r.isDraining(after, providers.KarpenterDisruptedTaint)
}

// isDraining reports whether a signal announces the removal of the node. It ignores a taint with
// the key except, and the controller's own taint.
func (r *Reader) isDraining(node *v1.Node, except string) bool {
	own := readControllerMark(node)
	for i := range r.Signals {
		if s := &r.Signals[i]; s.Class >= decision.Drain && (s.Kind != providers.TaintSignal || s.Key != except) &&
			hasForeignSignal(s, node, own) {
			return true
		}
	}
	return false
}

// emptiedWithin limits the time between the last pod of a node and the loss of the node. Many
// programs that announce an interruption also drain the node, often before the next observation.
// AWS gives two minutes, the longest usual notice of a cloud.
const emptiedWithin = 5 * time.Minute

// rebootTime is how long the loss of a cordoned node may be withdrawn: the default of calmPeriod.
const rebootTime = 10 * time.Minute

// LossDetector decides whether a Node, which must be spot, counts as lost. The zero value describes
// a Node that was never observed.
//
// A node is cordoned for a reboot (kured), but also before a reclaim. So the loss of a cordoned
// node is withdrawn if the kubelet of the same Node is ready again within rebootTime.
type LossDetector struct {
	lastOccupied       int64 // when a pod last occupied it, in Unix nanoseconds; 0 for never
	occupied           bool  // at the last observation
	observed, reported Disruption
	cordoned           bool // before its deletion began
	lost               bool
	counted            int64 // when it counted as lost for the first time, in Unix nanoseconds; 0 for never
	// cordonedFirst: it was cordoned when its kubelet was last ready, or at the first observation.
	cordonedFirst bool
	rebootSince   int64 // when a loss that may be withdrawn began, in Unix nanoseconds; 0 without one
}

// Record records an informer event of the Node. The next Observe or ObserveDeletion decides.
func (l *LossDetector) Record(event Event) {
	l.reported = max(l.reported, event.Disruption)
	l.cordoned = l.cordoned || event.Cordoned
}

// Observe records an observation of the Node at now: its disruption, and whether pods occupy it
// (see Occupies). It returns by how much the number of losses changes: 1 if the Node counts as lost
// for the first time, at now, and -1 if the loss that counted at the time at is withdrawn. After a
// withdrawal MayReturn is false.
func (l *LossDetector) Observe(n *v1.Node, disruption Disruption, occupied bool, now time.Time) (losses int, at time.Time) {
	ready := Ready(n) && disruption != Unreachable
	if ready || *l == (LossDetector{}) {
		l.cordonedFirst = n.Spec.Unschedulable
	}
	if l.occupied || occupied {
		l.lastOccupied = now.UnixNano()
	}
	l.observed, l.occupied = disruption, occupied
	wasLost := l.lost
	switch {
	case ready && disruption <= Voluntary && l.MayReturn(now):
		if l.counted == l.rebootSince {
			losses, at, l.counted = -1, time.Unix(0, l.counted), 0
		}
		l.lost, l.rebootSince = false, 0
	case l.decide(false, now):
		losses, at = 1, now
	}
	if l.lost && !wasLost && !ready && l.cordonedFirst {
		l.rebootSince = now.UnixNano()
	}
	return losses, at
}

// MayReturn reports whether the Node counts as lost at now, and the loss may still be withdrawn.
func (l *LossDetector) MayReturn(now time.Time) bool {
	return l.rebootSince != 0 && now.UnixNano()-l.rebootSince <= int64(rebootTime)
}

// ObserveDeletion records that the Node no longer exists at now. It reports whether the Node counts
// as lost for the first time.
func (l *LossDetector) ObserveDeletion(now time.Time) (first bool) {
	l.rebootSince = 0
	return l.decide(true, now)
}

// Lost reports whether the Node counted as lost at the last Observe or ObserveDeletion. It is false
// again if the signal was withdrawn.
func (l *LossDetector) Lost() bool { return l.lost }

func (l *LossDetector) decide(vanished bool, now time.Time) (first bool) {
	emptied := l.lastOccupied != 0 && now.UnixNano()-l.lastOccupied <= int64(emptiedWithin)
	switch max(l.observed, l.reported) {
	case NotDisrupted:
		l.lost = vanished && l.occupied
	case Voluntary:
		l.lost = false
	case Unreachable:
		l.lost = l.lost || l.occupied || emptied
	case DeletedFirst:
		l.lost = l.lost || l.occupied || emptied && !l.cordoned // an operator cordoned, drained and deleted it
	case Reclaimed:
		l.lost = true // even if it is empty: the cloud is reclaiming its spot pool
	}
	if first = l.lost && l.counted == 0; first {
		l.counted = now.UnixNano()
	}
	return first
}

// UnreachableReason is the value of the controller's taint on a node whose kubelet is unreachable
// (see UnreachableKubelet).
const UnreachableReason = "not-ready"

// ControllerMark is the part of spot.InterruptionStateAnnotation that identifies the controller's
// own taint.
type ControllerMark struct {
	// Class is the decision.SignalClass that the controller marked the node for, or "" if the node
	// is no longer marked.
	Class string `json:"class,omitempty"`
	// Taint is the value of the controller's taint, or "" if the controller has no taint on the
	// node. The effect is PreferNoSchedule for the class advisory, and NoSchedule otherwise.
	Taint string `json:"taint,omitempty"`
}

// Wrote reports whether the controller wrote the taint. Earlier versions wrote NoSchedule for every
// class, so both effects count.
func (m *ControllerMark) Wrote(t *v1.Taint) bool {
	return m.Taint != "" && t.Key == spot.InterruptionTaint && t.Effect != v1.TaintEffectNoExecute && t.Value == m.Taint
}

func (m *ControllerMark) isOn(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return m.Wrote(&t) })
}

// readControllerMark returns the controller's mark on the node. It is zero if there is none, or if
// the annotation does not parse.
func readControllerMark(node *v1.Node) (m ControllerMark) {
	if text, ok := node.Annotations[spot.InterruptionStateAnnotation]; ok && json.Unmarshal([]byte(text), &m) != nil {
		return ControllerMark{}
	}
	return m
}

// classOn returns the class of a signal on a node of this capacity type. The controller's own taint
// repeats another signal, and has its class.
func classOn(s *providers.Signal, node *v1.Node, capacity decision.CapacityType) decision.SignalClass {
	if s.Key == spot.InterruptionTaint {
		own := readControllerMark(node)
		for _, repeated := range []decision.SignalClass{decision.Advisory, decision.Drain} {
			if own.Class == repeated.String() && !hasForeignSignal(s, node, own) {
				return repeated
			}
		}
	}
	return s.ClassOn(node, capacity)
}

// hasForeignSignal reports whether the signal is on the node because of a mark that the controller
// did not write.
func hasForeignSignal(s *providers.Signal, node *v1.Node, own ControllerMark) bool {
	if s.Kind != providers.TaintSignal || s.Key != spot.InterruptionTaint || own.Taint == "" {
		return s.IsOn(node)
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == s.Key && (s.Value == "" || s.Value == t.Value) && !own.Wrote(t) {
			return true
		}
	}
	return false
}
