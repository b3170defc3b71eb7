package placement

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The changes of one owner wake at most wakeBatch pods per wakePeriod. A woken pod skips its
// back-off in the queue. The scheduler tries one pod at a time, so each attempt delays the pods of
// all other workloads. Without any change, 1,500 waiting pods cost more than this limit: 150
// attempts per second, because the queue's back-off is at most 10 s.
const (
	wakePeriod = time.Second
	wakeBatch  = 100
)

// Judge returns a function that reports whether the current state of its owners may unblock a pod
// with that Wait. The caller uses the function immediately, for all pods of one owner.
type Judge func() func(Wait) bool

// window is the wakePeriod after pods were judged or woken for an owner. It collects later changes.
type window struct {
	ownerChange
}

// ownerChange describes changes of an owner.
type ownerChange struct {
	judge   Judge // nil if the owner has not changed
	counted bool  // one of its pods no longer counts
}

func (c ownerChange) none() bool { return c.judge == nil && !c.counted }

// add merges a later change of the same owner.
func (c *ownerChange) add(later ownerChange) {
	if later.judge != nil {
		c.judge = later.judge
	}
	c.counted = c.counted || later.counted
}

// WakeFor wakes the pods that wait on owner, which has changed, if judge reports them. The first
// change wakes them at once. Changes within the following wakePeriod count as one, at its end. Pods
// beyond wakeBatch follow one wakePeriod later. The pods whose last turn is longest ago are woken
// first.
func (w *WaitingPods) WakeFor(owner workload.OwnerKey, judge Judge) {
	w.wakeFor(owner, ownerChange{judge: judge})
}

// WakeCounted wakes the pods that wait on owner and have Wait.Counted, because one of the owner's
// pods no longer counts. The limits of WakeFor apply.
func (w *WaitingPods) WakeCounted(owner workload.OwnerKey) {
	w.wakeFor(owner, ownerChange{counted: true})
}

func (w *WaitingPods) wakeFor(owner workload.OwnerKey, change ownerChange) {
	w.mu.Lock()
	open := w.windows[owner]
	switch {
	case len(w.byOwner[owner]) == 0:
		w.mu.Unlock()
		return
	case open != nil:
		open.add(change)
		w.mu.Unlock()
		return
	}
	w.windows[owner] = &window{}
	w.mu.Unlock()
	w.wakeNext(owner, change)
}

// endWindow ends the window of owner and begins the next one if more pods must be woken.
func (w *WaitingPods) endWindow(owner workload.OwnerKey) {
	w.mu.Lock()
	change := w.windows[owner].ownerChange
	w.windows[owner].ownerChange = ownerChange{}
	w.mu.Unlock()
	w.wakeNext(owner, change)
}

// wakeNext wakes the next pods of owner, whose window must be open. It judges the pods first if the
// owner has changed. It removes the window if it had nothing to do.
func (w *WaitingPods) wakeNext(owner workload.OwnerKey, change ownerChange) {
	if change.counted {
		w.markDue(owner, func(wait Wait) bool { return wait.DependsOnSiblings })
	}
	if change.judge != nil {
		w.markDue(owner, change.judge())
	}
	w.mu.Lock()
	pods := w.takeDue(owner)
	idle := change.none() && len(pods) == 0 && w.windows[owner].none()
	if idle {
		delete(w.windows, owner)
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		w.wake(pods)
	}
	if !idle {
		// Use a goroutine, because a clock may call the function while the clock is locked, and
		// endWindow uses the clock.
		w.clock.AfterFunc(wakePeriod, func() { go w.endWindow(owner) })
	}
}

// markDue marks the pods of owner that outdated reports. It calls outdated without the lock,
// because there may be thousands of pods and the scheduling cycle needs the lock.
func (w *WaitingPods) markDue(owner workload.OwnerKey, outdated func(Wait) bool) {
	w.mu.Lock()
	entries := make([]*waiter, 0, len(w.byOwner[owner]))
	for _, entry := range w.byOwner[owner] {
		entries = append(entries, entry)
	}
	w.mu.Unlock()
	entries = slices.DeleteFunc(entries, func(entry *waiter) bool { return !outdated(entry.Wait) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, entry := range entries {
		entry.due = true
	}
}

// takeDue returns up to wakeBatch due pods of owner and records that they were woken. The caller
// must hold w.mu.
func (w *WaitingPods) takeDue(owner workload.OwnerKey) map[string]*v1.Pod {
	var due []*waiter
	for _, entry := range w.byOwner[owner] {
		if entry.due {
			due = append(due, entry)
		}
	}
	slices.SortFunc(due, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.woken, b.woken), a.since.Compare(b.since), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	w.turns++
	pods := map[string]*v1.Pod{}
	for _, entry := range due[:min(len(due), wakeBatch)] {
		entry.due, entry.woken = false, w.turns
		pods[entry.pod.Namespace+"/"+entry.pod.Name] = entry.pod
	}
	return pods
}
