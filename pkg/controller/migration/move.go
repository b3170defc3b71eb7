package migration

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
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
	// Advice: the pod's node may be reclaimed, and the configuration asks to evict pods then.
	Advice Reason = "advice"
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
	// Requested: an EvictionRequest asks for the pod's eviction (package responder).
	Requested Reason = "eviction-request"
	// Unknown: the pod was released, and its annotation contains none of the other reasons.
	Unknown Reason = "unknown"
)

// Reasons are all values of Reason.
var Reasons = []Reason{Interruption, Advice, Heal, Assign, MakeRoom, ReturnToSpot, Drain, Requested, Unknown}

// Move is a pod that must leave its node.
type Move struct {
	Pod    *snapshot.Pod
	Reason Reason
	// Deadline is when the node is expected to vanish; zero if no reclaim is announced. Only a move
	// with a deadline can end in a deletion.
	Deadline time.Time
	// Noticed is when the node's interruption was first noticed; zero if unknown.
	Noticed time.Time
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
}

// action returns an action for the pod of the move.
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

// startable returns the moves that may start, in the order in which they reserve room. Moves with
// a deadline are first, sorted by the share of its pods that a workload would lose (largest first),
// then by deadline, namespace and name. Among workloads that would lose the same share, each first
// move precedes every second move. Scarce room thus saves something for many workloads rather than
// everything for a few. Other moves are sorted by namespace and name, and the namespaces take
// turns, because the time for the search may end.
func (p *planner) startable() []Move {
	var all []Move
	for _, m := range p.moves {
		if movable(m.Pod) && !p.inFlight(m.Pod) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, ByDeadline)
	loss := map[workload.OwnerKey]int{}
	for _, m := range all {
		if !m.Deadline.IsZero() {
			loss[workloadKey(m.Pod)]++
		}
	}
	// Without moves, the workload would lose `lost` of `pods` pods. Earlier moves of the same
	// workload count as completed.
	type share struct{ lost, pods int }
	shares := map[types.UID]share{}
	for _, m := range all {
		key := workloadKey(m.Pod)
		shares[m.Pod.UID] = share{loss[key], max(loss[key], podsOfWorkload(m.Pod))}
		loss[key]--
	}
	slices.SortStableFunc(all, func(a, b Move) int {
		if a.Deadline.IsZero() || b.Deadline.IsZero() {
			return ByDeadline(a, b)
		}
		shareA, shareB := shares[a.Pod.UID], shares[b.Pod.UID]
		return cmp.Compare(shareB.lost*shareA.pods, shareA.lost*shareB.pods)
	})
	if i := slices.IndexFunc(all, func(m Move) bool { return m.Deadline.IsZero() }); i >= 0 {
		turns.RoundRobin(all[i:], 1, func(m Move) string { return m.Pod.Namespace })
	}
	return all
}

// movable reports whether a move may start. DaemonSet and static pods belong to their node, and
// terminating pods need no move.
func movable(pod *snapshot.Pod) bool {
	return pod.Node != nil && pod.Live() && workload.PolicyApplies(pod.Pod)
}

// ByDeadline orders moves by deadline, those without one last, then by namespace and name of the
// pod.
func ByDeadline(a, b Move) int {
	return cmp.Or(compareDeadlines(a.Deadline, b.Deadline), byName(a.Pod, b.Pod))
}

// compareDeadlines orders deadlines, the earliest first. Zero means never.
func compareDeadlines(a, b time.Time) int {
	return cmp.Or(TrueFirst(!a.IsZero(), !b.IsZero()), a.Compare(b))
}

// TrueFirst orders booleans, true before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func byName(a, b *snapshot.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
