// Package migration moves pods: every pod that this project removes goes through it, so that limits, budgets and records exist once.
//
//	Move        why a pod has to leave its node, and by when           (packages interruption and rebalance say so)
//	Plan        the next step of every move, and of every release      -> Actions: data
//	Executor    performs actions, each once
//
// All state stands on the objects: a controller that is started finds what an earlier one had begun, and finishes or undoes it.
package migration

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Reason is why a pod is moved: the label of the migrations metric.
type Reason string

// Every Reason there is.
const (
	// Interruption: its node goes.
	Interruption Reason = "interruption"
	// Advice: its node may go, and the configuration says to leave it.
	Advice Reason = "advice"
	// Heal: it stands on spot, over its revision's budget or where its workload's floor is not met, and on-demand has room.
	Heal Reason = "heal"
	// Assign: it stands on on-demand as one of the floor, and does not say so on its own node affinity, where autoscalers would see it.
	Assign Reason = "assign"
	// MakeRoom: it may run on spot, and stands where a pod that must not waits for room.
	MakeRoom Reason = "make-room"
	// ReturnToSpot: it may run on spot, which has room, and stands on on-demand beyond its workload's floor.
	ReturnToSpot Reason = "return-to-spot"
	// Drain: somebody else drains its node, and would have to wait for its eviction, or would leave its workload without a ready replica.
	Drain Reason = "drain"
	// Requested: somebody asked for its eviction by an EvictionRequest (package responder).
	Requested Reason = "eviction-request"
	// Unknown: it was released, and its annotation names none of the others.
	Unknown Reason = "unknown"
)

// reasons are those that a release may name.
var reasons = []Reason{Interruption, Advice, Heal, Assign, MakeRoom, ReturnToSpot, Drain, Requested}

// wants returns the capacity type that the replacement has to find for the move to be worth it; false if either will do.
func (r Reason) wants() (decision.CapacityType, bool) {
	switch r {
	case Heal, Assign:
		return decision.OnDemand, true
	case MakeRoom, ReturnToSpot:
		return decision.Spot, true
	}
	return 0, false
}

// Move is a pod that has to leave its node.
type Move struct {
	Pod    *cluster.Pod
	Reason Reason
	// Deadline is when its node goes; zero if it does not. Only a move with a deadline ends in a deletion.
	Deadline time.Time
	// Noticed is since when its node is known to go; zero if that is not known.
	Noticed time.Time
	// OnlySurge: the pod is not to be evicted before its replacement is ready. A move with a deadline does not ask for it.
	OnlySurge bool
	// Requires is the capacity type that the replacement will require by its own node affinity, in the autoscaler mode. An autoscaler buys it, so
	// that a surge needs no room that exists. decision.Unassigned: the replacement requires nothing, or that is not known.
	Requires decision.Assignment
}

// Way is how a pod is moved: the label of the migrations metric.
type Way string

// Every Way there is, the gentlest first.
const (
	// Surge: released from its ReplicaSet, which makes a replacement; evicted when that is ready.
	Surge Way = "surge"
	// Evict: evicted, its replacement comes after it.
	Evict Way = "evict"
	// Delete: deleted, because there is no time left for a budget.
	Delete Way = "delete"
)

// Kind is what an Action does.
type Kind string

// Every Kind there is.
const (
	// Release takes the pod out of its ReplicaSet.
	Release Kind = "release"
	// Restore gives a released pod back to its ReplicaSet, which has yet to adopt it if no Deployment controls it.
	Restore Kind = "restore"
	// Forget removes the annotation of a release from a pod that its ReplicaSet has adopted again.
	Forget Kind = "forget"
	// EvictPod asks for the pod's eviction.
	EvictPod Kind = "evict"
	// DeletePod deletes it.
	DeletePod Kind = "delete"
	// Unreleasable is no action: in Progress it says that the API server refuses to have the pod released.
	Unreleasable Kind = "unreleasable"
	// Stay asks for nothing: the pod stays for now, and somebody may want to know why.
	Stay Kind = "stay"
)

// Action is one request for one pod.
type Action struct {
	Kind   Kind
	Pod    *cluster.Pod
	Reason Reason
	// Way is of the move that the action belongs to.
	Way Way
	// Deadline is the move's.
	Deadline time.Time
	// Last is when the pod is deleted if it has not left by then; zero without a Deadline.
	Last time.Time
	// Grace is the grace period of a deletion, at least 1 s; nil: the pod's own.
	Grace *time.Duration
	// Orphan: the pod leaves because by the caches the ReplicaSet that it was released from is gone, or wants no pods. That is no proof: the
	// API server is asked before it is deleted.
	Orphan bool
	// Budget is the UID of the PodDisruptionBudget that an eviction is charged to; empty if none selects the pod, or several.
	Budget types.UID
	// Unlikely: by what the caches say of its PodDisruptionBudget, the eviction would be refused. They may be late, so it is asked for all the
	// same, but not at once.
	Unlikely bool
	// Unplaced: nothing has room for the replacement, as far as there was time to look. It may wait for a new node.
	Unplaced bool
	// ToSpot: the replacement of a released pod is to require spot.
	ToSpot bool
	// Why says for people what decided.
	Why string
}
