// Package migration moves pods. Every eviction and deletion by this project uses it, so that
// limits, budgets and records exist once.
//
//	Move        why a pod must leave its node, and by when
//	            (packages interruption, rebalance and responder)
//	Plan        returns the next step of every move and of every released pod, as Actions (data)
//	Executor    performs actions, each once
//
// All state is stored on the API objects. A new controller process finds the moves that an earlier
// one started, and completes or undoes them.
package migration

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
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
	Heal Reason = "heal"
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

// reasons are the values that the annotation of a released pod may contain.
var reasons = []Reason{Interruption, Advice, Heal, Assign, MakeRoom, ReturnToSpot, Drain, Requested}

// wants returns the capacity type that the replacement must find for the move to be useful. ok is
// false if any capacity type will do.
func (r Reason) wants() (decision.CapacityType, bool) {
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
}

// Way is how a pod is moved. It is a label of the migrations metric.
type Method string

// All values of Way, the gentlest first.
const (
	// Surge releases the pod from its ReplicaSet, which creates a replacement. The pod is evicted
	// when the replacement is ready.
	Surge Method = "surge"
	// Evict evicts the pod. Its replacement starts afterwards.
	Evict Method = "evict"
	// Delete deletes the pod, because no time is left for a PodDisruptionBudget.
	Delete Method = "delete"
)

// Kind is what an Action does.
type Kind string

// All values of Kind.
const (
	// Release removes the pod from its ReplicaSet.
	Release Kind = "release"
	// Restore gives a released pod back to its ReplicaSet. If no Deployment controls the pod, the
	// ReplicaSet must still adopt it.
	Restore Kind = "restore"
	// Forget removes the release annotation from a pod that its ReplicaSet has adopted again.
	Forget Kind = "forget"
	// EvictPod evicts the pod through the eviction API.
	EvictPod Kind = "evict"
	// DeletePod deletes the pod.
	DeletePod Kind = "delete"
	// Unreleasable is not an action. In Progress it means that the API server refused to release
	// the pod.
	Unreleasable Kind = "unreleasable"
	// Stay sends no request. The pod stays for now, and Why explains this to users.
	Stay Kind = "stay"
)

// Action is one request for one pod.
type Action struct {
	Kind   Kind
	Pod    *snapshot.Pod
	Reason Reason
	// Way is the way of the move that the action belongs to.
	Method Method
	// Deadline is the deadline of the move.
	Deadline time.Time
	// Last is when the controller deletes the pod if it is still on its node; zero without a
	// Deadline.
	LastMoment time.Time
	// Grace is the grace period of a deletion, at least 1 s. nil means the pod's own grace period.
	Grace *time.Duration
	// Orphan: according to the caches, the ReplicaSet that the pod was released from is gone or
	// wants no pods. The caches may be stale, so the executor asks the API server before it deletes
	// the pod.
	Orphan bool
	// Budget is the UID of the PodDisruptionBudget that an eviction is charged to. It is empty if
	// no PodDisruptionBudget selects the pod, or if several do.
	Budget types.UID
	// Unlikely: according to the caches, the PodDisruptionBudget allows no eviction. The caches may
	// be stale, so the executor requests the eviction anyway, but later.
	Unlikely bool
	// Unplaced: no room was found for the replacement in the time available. The replacement may
	// wait for a new node.
	Unplaced bool
	// ToSpot: the replacement of the released pod must require spot.
	ToSpot bool
	// Why explains the decision to users.
	Why string
}
