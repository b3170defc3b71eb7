package gating

import (
	"maps"
	"sync"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Wishes are the capacity types that the next new pods of revisions are to require: the replacements of pods that are moved. They are in
// memory only. If another replica becomes the leader before the replacement is made, the replacement requires nothing and goes to whatever
// capacity the autoscaler chooses.
//
// The next new pod of a revision may be one of a scale-up rather than the replacement. That is harmless: as many pods of the revision require
// the capacity type as were meant to.
//
// The zero value holds no wishes. Wishes are safe for concurrent use.
type Wishes struct {
	mu    sync.Mutex
	wants map[kube.OwnerKey]wish
}

// wish is a capacity type that a new pod is to require if it is made before until.
type wish struct {
	capacity decision.CapacityType
	until    time.Time
}

// Want has the next new pod of a revision require a capacity type, if it is made before until. It replaces an earlier wish for that revision,
// because a workload has one move at a time.
func (w *Wishes) Want(revision kube.OwnerKey, capacity decision.CapacityType, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wants == nil {
		w.wants = map[kube.OwnerKey]wish{}
	}
	w.wants[revision] = wish{capacity, until}
}

// Take returns what the new pod of a revision is to require, and forgets it; false if nothing is wanted.
func (w *Wishes) Take(revision kube.OwnerKey, now time.Time) (decision.CapacityType, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.wants, func(_ kube.OwnerKey, want wish) bool { return !now.Before(want.until) })
	want, ok := w.wants[revision]
	delete(w.wants, revision)
	return want.capacity, ok
}

// Forget withdraws the wish for a revision, if there is one: its pod is not moved, or not any more.
func (w *Wishes) Forget(revision kube.OwnerKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wants, revision)
}
