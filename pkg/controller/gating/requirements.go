package gating

import (
	"maps"
	"sync"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Requirements contains the capacity types that the next new pods of revisions must require: the
// replacements of pods that are moved. It exists in memory only. If another replica becomes the
// leader before the replacement is created, the replacement has no requirement, and the autoscaler
// chooses its capacity type.
//
// The next new pod of a revision may belong to a scale-up instead of the move. This is harmless:
// the intended number of pods of the revision requires the capacity type.
//
// The zero value is empty. Requirements is safe for concurrent use.
type Requirements struct {
	mu         sync.Mutex
	byRevision map[workload.OwnerKey]requirement
}

// requirement is a capacity type that a new pod must require if it is created before until.
type requirement struct {
	capacity decision.CapacityType
	until    time.Time
}

// Require makes the next new pod of a revision require a capacity type, if the pod is created
// before until. It replaces an earlier requirement for that revision, because a workload has at
// most one move at a time.
func (r *Requirements) Require(revision workload.OwnerKey, capacity decision.CapacityType, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byRevision == nil {
		r.byRevision = map[workload.OwnerKey]requirement{}
	}
	r.byRevision[revision] = requirement{capacity, until}
}

// Take removes and returns the requirement for a new pod of a revision; false if there is none.
func (r *Requirements) Take(revision workload.OwnerKey, now time.Time) (decision.CapacityType, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byRevision, func(_ workload.OwnerKey, required requirement) bool { return !now.Before(required.until) })
	required, ok := r.byRevision[revision]
	delete(r.byRevision, revision)
	return required.capacity, ok
}

// Forget removes the requirement for a revision, if any, because its pod is no longer moved.
func (r *Requirements) Forget(revision workload.OwnerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byRevision, revision)
}
