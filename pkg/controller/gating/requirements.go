package gating

import (
	"maps"
	"sync"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Requirements contains the revisions whose next new pod must require spot, because it replaces a
// pod that returns to spot. It exists in memory only. If another replica becomes the leader before
// the replacement is created, the replacement has no requirement, and the autoscaler chooses its
// capacity type.
//
// The next new pod of a revision may belong to a scale-up instead of the move. This is harmless:
// the intended number of pods of the revision requires spot.
//
// The zero value is empty. Requirements is safe for concurrent use.
type Requirements struct {
	mu sync.Mutex
	// until contains when each requirement ends.
	until map[workload.OwnerKey]time.Time
}

// RequireSpot makes the next new pod of a revision require spot, if the pod is created before
// until. It replaces an earlier requirement for that revision, because a workload has at most one
// move at a time.
func (r *Requirements) RequireSpot(revision workload.OwnerKey, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[workload.OwnerKey]time.Time{}
	}
	r.until[revision] = until
}

// Take removes the requirement for a new pod of a revision, and reports whether there was one.
func (r *Requirements) Take(revision workload.OwnerKey, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.until, func(_ workload.OwnerKey, until time.Time) bool { return !now.Before(until) })
	_, ok := r.until[revision]
	delete(r.until, revision)
	return ok
}

// Forget removes the requirement for a revision, if any, because its pod is no longer moved.
func (r *Requirements) Forget(revision workload.OwnerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, revision)
}
