package migration

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// Method is how a pod is moved. It is a label of the migrations metric.
type Method string

// All values of Method, the gentlest first.
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
	// Stay sends no request. The pod stays for now, and Why explains this to users.
	Stay Kind = "stay"
)

// Action is one request for one pod. The zero Action means that there is nothing to do.
type Action struct {
	// Move is the move that the action belongs to. If Useless is set, the pod stays, and the
	// executor reports this once for each workload and node.
	Move
	Kind Kind
	// Method is the method of the move. A Stay may have none.
	Method Method
	// LastMoment is when the controller deletes the pod if it is still on its node; zero without a
	// Deadline and for an Unconfirmed move.
	LastMoment time.Time
	// Grace is the grace period of a deletion, at least 1 s. nil means the pod's own grace period.
	Grace *time.Duration
	// Orphan: according to the caches, the ReplicaSet that the pod was released from is gone or
	// wants no pods. The caches may be stale, so the executor asks the API server before it deletes
	// the pod.
	Orphan bool
	// DisruptionBudget is the UID of the PodDisruptionBudget that an eviction is charged to. It is
	// empty if no PodDisruptionBudget selects the pod, or if several do.
	DisruptionBudget types.UID
	// LikelyRefused: according to the caches, the PodDisruptionBudget allows no eviction. The
	// caches may be stale, so the executor later requests an eviction of one pod anyway.
	LikelyRefused bool
	// Unevictable is why a PodDisruptionBudget never allows an eviction of the pod; "" if it may.
	Unevictable string
	// WithoutRoom: no room was found for the replacement in the time available. The replacement may
	// wait for a new node.
	WithoutRoom bool
	// ToSpot: the replacement of the released pod must require spot.
	ToSpot bool
	// Why explains the decision to users.
	Why    string
	Record Record
}

// Removal describes the request of a release, an eviction or a deletion.
func (a *Action) Removal() safety.Removal {
	r := safety.Removal{Cause: a.cause(), Pod: a.Pod.UID, Namespace: a.Pod.Namespace, Starts: a.starts()}
	if w := a.Pod.OwnWorkload(); w != nil {
		r.Workload = w.Kind + "/" + w.Name
	}
	return r
}

// isPaused reports whether the release and the eviction of a pod are paused.
func (p *planner) isPaused(o *observation) bool {
	return p.settings.Paused.Stops((&Action{Move: o.Move, Kind: EvictPod}).cause())
}

// removes reports whether the action removes or releases its pod.
func (a *Action) removes() bool {
	return a.Kind == Release || a.Kind == EvictPod || a.Kind == DeletePod
}

func (a *Action) cause() safety.Cause {
	switch {
	case a.Orphan || a.Reason == Unknown:
		return safety.Obsolete
	case a.Unreachable:
		return safety.Unreachable
	case a.Method == Delete:
		return safety.Deadline
	case a.Reason == Interruption:
		return safety.Reclaim
	}
	return safety.Cause(a.Reason) // the other reasons have the names of their causes
}
