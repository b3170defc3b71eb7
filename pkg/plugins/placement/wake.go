package placement

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// The changes of one owner wake at most wakeBatch pods per wakePeriod. A woken pod skips its back-off
// in the queue, and the scheduler tries one pod at a time: each attempt delays the pods of all other
// workloads. Without a change, 1,500 waiting pods cost more: 150 attempts a second, because the queue's
// back-off is 10 s at most.
const (
	wakePeriod = time.Second
	wakeBatch  = 100
)

// Judge returns a function that reports whether the state of its owners at this moment may unblock a
// pod with that Wait. The function is used at once, for all pods of one owner.
type Judge func() func(Wait) bool

// window is the time after pods were judged or woken for an owner.
type window struct {
	news
}

// news is what has happened to an owner.
type news struct {
	judge   Judge // nil if the owner has not changed
	counted bool  // one of its pods no longer counts
}

func (n news) none() bool { return n.judge == nil && !n.counted }

// add adds later news of the same owner.
func (n *news) add(later news) {
	if later.judge != nil {
		n.judge = later.judge
	}
	n.counted = n.counted || later.counted
}

// WakeFor wakes the pods that wait on owner, which has changed, and that judge reports. The first change
// wakes them at once. Changes within wakePeriod after that count as one, at its end. Pods beyond
// wakeBatch follow one wakePeriod later; first the pods whose last turn is longest ago.
func (w *Waiting) WakeFor(owner kube.OwnerKey, judge Judge) { w.wakeFor(owner, news{judge: judge}) }

// WakeCounted wakes the pods that wait on owner and whose Wait is Counted, because one of its pods no longer counts, within the same limits
// as WakeFor.
func (w *Waiting) WakeCounted(owner kube.OwnerKey) { w.wakeFor(owner, news{counted: true}) }

func (w *Waiting) wakeFor(owner kube.OwnerKey, of news) {
	w.mu.Lock()
	open := w.windows[owner]
	switch {
	case len(w.byOwner[owner]) == 0:
		w.mu.Unlock()
		return
	case open != nil:
		open.add(of)
		w.mu.Unlock()
		return
	}
	w.windows[owner] = &window{}
	w.mu.Unlock()
	w.wakeNext(owner, of)
}

// endWindow ends the window of owner, and begins the next one if there is more to do.
func (w *Waiting) endWindow(owner kube.OwnerKey) {
	w.mu.Lock()
	of := w.windows[owner].news
	w.windows[owner].news = news{}
	w.mu.Unlock()
	w.wakeNext(owner, of)
}

// wakeNext wakes the next pods of owner, whose window is open. It judges the pods first if there is
// news. It forgets the window if there was nothing to do.
func (w *Waiting) wakeNext(owner kube.OwnerKey, of news) {
	if of.counted {
		w.markDue(owner, func(wait Wait) bool { return wait.Counted })
	}
	if of.judge != nil {
		w.markDue(owner, of.judge())
	}
	w.mu.Lock()
	pods := w.takeDue(owner)
	idle := of.none() && len(pods) == 0 && w.windows[owner].none()
	if idle {
		delete(w.windows, owner)
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		w.wake(pods)
	}
	if !idle {
		// In a goroutine, because a clock may run the function while it is locked, and endWindow uses the clock.
		w.clock.AfterFunc(wakePeriod, func() { go w.endWindow(owner) })
	}
}

// markDue marks the pods of owner that outdated reports. It calls outdated without the lock: there may be
// thousands of pods, and the scheduling cycle needs the lock.
func (w *Waiting) markDue(owner kube.OwnerKey, outdated func(Wait) bool) {
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

// takeDue returns up to wakeBatch pods of owner that are due, and notes that they were woken.
func (w *Waiting) takeDue(owner kube.OwnerKey) map[string]*v1.Pod {
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
