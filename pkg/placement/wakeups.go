package placement

import (
	"cmp"
	"maps"
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

// OwnerCheck returns a function that reports whether the current state of its owners may unblock a
// pod with that Wait. The caller uses the function immediately, for all pods of one owner.
type OwnerCheck func() func(*v1.Pod, Wait) bool

type ownerChange struct {
	check       OwnerCheck // nil if the owner itself has not changed
	siblingLeft bool       // a pod of the owner no longer counts as a sibling
}

func (c ownerChange) isEmpty() bool { return c.check == nil && !c.siblingLeft }

// add merges a later change of the same owner.
func (c *ownerChange) add(later ownerChange) {
	if later.check != nil {
		c.check = later.check
	}
	c.siblingLeft = c.siblingLeft || later.siblingLeft
}

// WakeOwned wakes the pods that wait on owner, which has changed, if check reports them. The first
// change wakes them at once. Changes within the following wakePeriod count as one, at its end. Pods
// beyond wakeBatch follow one wakePeriod later. The pods that were woken longest ago are woken
// first.
func (w *WaitingPods) WakeOwned(owner workload.OwnerKey, check OwnerCheck) {
	w.wakeOwned(owner, ownerChange{check: check})
}

// WakeSiblings wakes the pods that wait on owner and have Wait.DependsOnSiblings, because a pod of
// the owner no longer counts as a sibling. The limits of WakeOwned apply.
func (w *WaitingPods) WakeSiblings(owner workload.OwnerKey) {
	w.wakeOwned(owner, ownerChange{siblingLeft: true})
}

func (w *WaitingPods) wakeOwned(owner workload.OwnerKey, change ownerChange) {
	w.mu.Lock()
	pending := w.throttled[owner]
	switch {
	case len(w.byOwner[owner]) == 0:
		w.mu.Unlock()
		return
	case pending != nil:
		pending.add(change)
		w.mu.Unlock()
		return
	}
	w.throttled[owner] = &ownerChange{}
	w.mu.Unlock()
	w.wakeNext(owner, change)
}

// endThrottle ends a wakePeriod of owner and begins the next one if more pods must be woken.
func (w *WaitingPods) endThrottle(owner workload.OwnerKey) {
	w.mu.Lock()
	change := *w.throttled[owner]
	*w.throttled[owner] = ownerChange{}
	w.mu.Unlock()
	w.wakeNext(owner, change)
}

// wakeNext wakes the next pods of owner, which must be throttled. It checks the pods first if the
// owner has changed. If it had nothing to do, owner is no longer throttled.
func (w *WaitingPods) wakeNext(owner workload.OwnerKey, change ownerChange) {
	if change.siblingLeft {
		w.markDue(owner, false, func(_ *v1.Pod, wait Wait) bool { return wait.DependsOnSiblings })
	}
	if change.check != nil {
		w.markDue(owner, true, change.check())
	}
	w.mu.Lock()
	pods := w.nextBatch(owner)
	idle := change.isEmpty() && len(pods) == 0 && w.throttled[owner].isEmpty()
	if idle {
		delete(w.throttled, owner)
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		w.wake(pods)
	}
	if !idle {
		// Use a goroutine, because a clock may call the function while the clock is locked, and
		// endThrottle uses the clock.
		w.clock.AfterFunc(wakePeriod, func() { go w.endThrottle(owner) })
	}
}

// markDue marks the pods of owner that unblocked reports; ownerChanged means that owner itself
// changed. It calls unblocked without the lock, because there may be thousands of pods and the
// scheduling cycle needs the lock.
func (w *WaitingPods) markDue(owner workload.OwnerKey, ownerChanged bool, unblocked func(*v1.Pod, Wait) bool) {
	w.mu.Lock()
	entries := slices.Collect(maps.Values(w.byOwner[owner]))
	w.mu.Unlock()
	entries = slices.DeleteFunc(entries, func(entry *waitingPod) bool { return !unblocked(entry.pod, entry.Wait) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, entry := range entries {
		entry.due = true
		if ownerChanged {
			entry.unblocked.Store(true)
		}
	}
}

// nextBatch returns up to wakeBatch due pods of owner and records that they were woken. The caller
// must hold w.mu.
func (w *WaitingPods) nextBatch(owner workload.OwnerKey) map[string]*v1.Pod {
	var due []*waitingPod
	for _, entry := range w.byOwner[owner] {
		if entry.due {
			due = append(due, entry)
		}
	}
	slices.SortFunc(due, func(a, b *waitingPod) int {
		return cmp.Or(cmp.Compare(a.lastBatch, b.lastBatch), a.since.Compare(b.since), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	w.batches++
	pods := map[string]*v1.Pod{}
	for _, entry := range due[:min(len(due), wakeBatch)] {
		entry.due, entry.lastBatch = false, w.batches
		pods[entry.pod.Namespace+"/"+entry.pod.Name] = entry.pod
	}
	return pods
}
