package migration

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Reason is why a pod is moved. It is a label of the migrations metric.
type Reason string

// All values of Reason.
const (
	// Interruption: the pod's node is about to be reclaimed.
	Interruption Reason = "interruption"
	// Advisory: the pod's node may be reclaimed, and the configuration asks to evict pods then.
	Advisory Reason = "advisory"
	// Heal: the pod runs on spot, on-demand has room for it, and either its revision exceeds the
	// spot budget or its workload's floor is not met.
	Heal Reason = workload.HealReason
	// Assign: the pod counts for the floor and runs on on-demand, but its own node affinity does
	// not require on-demand. Autoscalers see only the affinity.
	Assign Reason = "assign"
	// MakeRoom: the pod may run on spot, and uses room on a node where a pod waits that must not
	// run on spot.
	MakeRoom Reason = "make-room"
	// ReturnToSpot: the pod runs on on-demand beyond its workload's floor, may run on spot, and
	// spot has room.
	ReturnToSpot Reason = "return-to-spot"
	// Drain: a user or a tool drains the pod's node. The eviction would be refused, or would leave
	// the workload without a ready replica.
	Drain Reason = "drain"
	// Requested: another actor requests the eviction of the pod. No planner requests it yet.
	Requested Reason = "eviction-request"
	// Unknown: the pod was released, and its annotation contains none of the other reasons.
	Unknown Reason = "unknown"
)

// Reasons are all values of Reason.
var Reasons = []Reason{Interruption, Advisory, Heal, Assign, MakeRoom, ReturnToSpot, Drain, Requested, Unknown}

// reasonOf returns why a pod was released. Any client can write the annotation, so an unknown value
// is not used as a metric label.
func reasonOf(r *snapshot.Release) Reason {
	if reason := Reason(r.Reason); slices.Contains(Reasons, reason) {
		return reason
	}
	return Unknown
}

// destination returns the capacity type of the nodes on which a replacement is useful. ok is false
// if every capacity type is.
func (r Reason) destination() (capacity decision.CapacityType, ok bool) {
	switch r {
	case Heal, Assign:
		return decision.OnDemand, true
	case MakeRoom, ReturnToSpot:
		return decision.Spot, true
	}
	return 0, false
}

// Move is a pod that must leave its node.
type Move struct {
	Pod    *snapshot.Pod
	Reason Reason
	// Deadline is when the node is expected to vanish; zero if no reclaim is announced. Only a move
	// with a deadline, or off a deleted node, can end in a deletion.
	Deadline time.Time
	// Noticed is when the node's interruption was first noticed; zero if unknown. Free is since
	// when the controller may act on it: later than Noticed after a pause, an open breaker, or a
	// change of leaders. The time until the Deadline is shared out from then on.
	Noticed, Free time.Time
	// Unreachable: the kubelet of the node is unreachable, and the deadline may follow from that.
	// Or the Node was deleted: then Pod.Node is nil, and the pod is deleted without a deadline.
	Unreachable bool
	// Unconfirmed: the breaker for reclaim signals is open, and nothing else confirms that the node
	// is being reclaimed. The pod is released if possible, and a released pod is evicted as usual.
	// It is not evicted before its release, except in a FairEnd, and has no last moment. Only moves
	// with a deadline are unconfirmed.
	Unconfirmed bool
	// FairEnd is since when an unconfirmed pod that cannot surge may be evicted until its Deadline:
	// in turn, if a replacement has room now (planner.mayEndFairly). Zero means never.
	FairEnd time.Time
	// OnlySurge forbids an eviction before the replacement is ready. Moves with a deadline do not
	// set it.
	OnlySurge bool
	// Requires is the capacity type that the replacement will require by its own node affinity in
	// the autoscaler mode. An autoscaler adds a node for it, so the surge needs no existing room.
	// decision.Unassigned means that the replacement requires nothing, or that this is unknown.
	Requires decision.AssignedCapacity
	// Useless explains why the pod stays: its move would not help, or would not end; "" if it may
	// move.
	Useless string
	// Limited is why limits refuse the start of the move now (package safety), so that the pod
	// stays; "" if they do not.
	Limited string
}

// began returns when the time until the Deadline began.
func (m *Move) began() time.Time {
	if m.Free.After(m.Noticed) {
		return m.Free
	}
	return m.Noticed
}

func (m Move) action(kind Kind, method Method, why string) Action {
	return Action{Move: m, Kind: kind, Method: method, Why: why}
}

// collect returns one move for each pod, by the UID of the pod: the one with the earliest deadline,
// then the first. Requested replaces Drain, because the requester waits until the controller evicts
// the pod.
func collect(moves []Move) map[types.UID]Move {
	byPod := map[types.UID]Move{}
	for _, m := range moves {
		known, ok := byPod[m.Pod.UID]
		if !ok || compareDeadlines(m.Deadline, known.Deadline) < 0 || known.Reason == Drain && m.Reason == Requested {
			byPod[m.Pod.UID] = m
		}
	}
	return byPod
}
