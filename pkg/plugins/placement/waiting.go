package placement

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Waiting remembers the pods of one profile that were found unschedulable: since when, what they wait for, and when to try them
// again although nothing has happened in the cluster. It is memory only: after a restart the waiting starts anew, because
// nothing on a pod says when it was first found unschedulable (the transition time of PodScheduled is that of its gates).
// All methods may be called concurrently.
type Waiting struct {
	clock clock.WithDelayedExecution
	wake  func(pods map[string]*v1.Pod)

	mu   sync.Mutex
	pods map[types.UID]*waiter
	// byOwner holds the waiting pods by each object that they wait on.
	byOwner map[kube.OwnerKey]map[types.UID]*waiter
	// gangs holds those with pods that wait or are bound; gangOf is the gang of each bound pod.
	gangs  map[Gang]*gang
	gangOf map[types.UID]Gang
	// heldSoon is set while pods are to be woken that Wait says were Held. They are in byOwner by heldKey.
	heldSoon clock.Timer
	// floors are the pods that Wait says are ForOnDemand, by what they ask of a node.
	floors map[string]*floorPods
	// windows holds the owners for which pods were woken within the last wakePeriod; see WakeFor.
	windows map[kube.OwnerKey]*window
	turns   uint64      // how often WakeFor has woken pods
	soon    clock.Timer // set while WakeCountedSoon is pending
}

// Wait says what a pod waits for.
type Wait struct {
	// Owners are the objects whose change may unblock the pod.
	Owners []kube.OwnerKey
	// ForOnDemand: the policy keeps the pod off spot.
	ForOnDemand bool
	// Held: a node was held for pods that wait for on-demand, and would be open to the pod otherwise.
	Held bool
	// Counted: fewer siblings on spot, or with overflow Never on on-demand, may unblock it.
	Counted bool
	// Invalid are the annotations that were reported as ignored.
	Invalid []decision.InvalidAnnotation
	// Why is what was logged of it; empty if nothing was.
	Why string
	// Again is when time alone may unblock it; the zero time for never.
	Again time.Time
	// Gang is the gang of the pod; the zero Gang if it is in none.
	Gang Gang
	// Preempts is State.Preempts of the last cycle; nil if that had none.
	Preempts *atomic.Bool
	// Basis is what the pod's plan was made from. Only the Judge reads it.
	Basis any
}

// Gang identifies pods that are placed all together or not at all, and that share the clock of their waiting: those of one revision with
// one PodGroup. The revision is part of it because anyone who may create pods may give them the label of any PodGroup.
type Gang struct {
	Revision kube.OwnerKey
	PodGroup string // namespace/name
}

type gang struct {
	waiting map[types.UID]*waiter
	bound   int
	// scheduled: a pod of the gang has been bound since the gang was first known.
	scheduled bool
}

type waiter struct {
	Wait
	pod   *v1.Pod
	since time.Time
	timer clock.Timer
	shape string // of Waiting.floors; "" if it is in none
	due   bool   // an owner's change may unblock the pod, and it has not been woken since
	woken uint64 // the last turn in which WakeFor woke the pod; 0 if none
}

// NewWaiting returns an empty memory that has pods tried again by calling wake, which must not block.
func NewWaiting(c clock.WithDelayedExecution, wake func(pods map[string]*v1.Pod)) *Waiting {
	return &Waiting{clock: c, wake: wake, pods: map[types.UID]*waiter{}, byOwner: map[kube.OwnerKey]map[types.UID]*waiter{}, gangs: map[Gang]*gang{}, gangOf: map[types.UID]Gang{}, windows: map[kube.OwnerKey]*window{}, floors: map[string]*floorPods{}}
}

// Found notes that pod was found unschedulable now, and what it waits for this time.
func (w *Waiting) Found(pod *v1.Pod, wait Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	entry := &waiter{Wait: wait, pod: pod, since: now}
	old := w.pods[pod.UID]
	if old != nil {
		entry.since, entry.woken = old.since, old.woken
	}
	if wait.Gang != (Gang{}) {
		w.gang(wait.Gang).waiting[pod.UID] = entry // before old is dropped, and with it a gang without pods
	}
	if old != nil {
		w.drop(old)
		if old.ForOnDemand && !wait.ForOnDemand {
			w.wakeHeldSoon()
		}
	}
	w.pods[pod.UID] = entry
	if wait.Held {
		addWaiter(w.byOwner, heldKey, entry)
	}
	w.addFloor(entry)
	for _, owner := range wait.Owners {
		addWaiter(w.byOwner, owner, entry)
	}
	if !wait.Again.IsZero() {
		entry.timer = w.clock.AfterFunc(wait.Again.Sub(now), func() { w.wake(keyed(entry.pod)) })
	}
}

func addWaiter[K comparable](to map[K]map[types.UID]*waiter, key K, entry *waiter) {
	if to[key] == nil {
		to[key] = map[types.UID]*waiter{}
	}
	to[key][entry.pod.UID] = entry
}

func dropWaiter[K comparable](from map[K]map[types.UID]*waiter, key K, entry *waiter) {
	delete(from[key], entry.pod.UID)
	if len(from[key]) == 0 {
		delete(from, key)
	}
}

// WaitingSince returns when the pod, or the first of its gang that still waits, was first found unschedulable; false if none was. One pod
// that finds no node has the whole gang wait, so that the others are not tried in vain as often as it: with clocks of their own, each of
// the floor's pods would begin its wait where the last one's ends. Once a pod of the gang has been bound, each of its pods has its own
// clock: a replacement, or a pod beyond the gang's minimum, does not wait for the others.
func (w *Waiting) WaitingSince(pod types.UID, of Gang) (time.Time, bool) {
	since, waits := w.Since(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.gangs[of]; g != nil && !g.scheduled {
		for _, entry := range g.waiting {
			if !waits || entry.since.Before(since) {
				since, waits = entry.since, true
			}
		}
	}
	return since, waits
}

// Bound forgets a pod that was bound. If it is in a gang, the gang's common clock ends.
func (w *Waiting) Bound(pod types.UID, of Gang) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(pod)
	if _, known := w.gangOf[pod]; known || of == (Gang{}) {
		return
	}
	g := w.gang(of)
	g.scheduled = true
	g.bound++
	w.gangOf[pod] = of
}

// gang returns the gang of that key, a new one if it is not known.
func (w *Waiting) gang(of Gang) *gang {
	g := w.gangs[of]
	if g == nil {
		g = &gang{waiting: map[types.UID]*waiter{}}
		w.gangs[of] = g
	}
	return g
}

// forgetIfGone forgets a gang without pods.
func (w *Waiting) forgetIfGone(of Gang) {
	if g := w.gangs[of]; g != nil && g.bound == 0 && len(g.waiting) == 0 {
		delete(w.gangs, of)
	}
}

// Since returns when the pod was first found unschedulable; false if it is not waiting.
func (w *Waiting) Since(pod types.UID) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry := w.pods[pod]; entry != nil {
		return entry.since, true
	}
	return time.Time{}, false
}

// Preempts reports whether preemption may have promised a node to a pod that waits on owner.
func (w *Waiting) Preempts(owner kube.OwnerKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, entry := range w.byOwner[owner] {
		if entry.Wait.Preempts != nil && entry.Wait.Preempts.Load() {
			return true
		}
	}
	return false
}

// After calls f in a goroutine of its own after d, by the clock that pods wait by.
func (w *Waiting) After(d time.Duration, f func()) {
	// A clock may run the function while it is locked, and f may use the clock.
	w.clock.AfterFunc(d, func() { go f() })
}

// Invalid returns the annotations of the pod that were last reported as ignored; nil if it is not waiting.
func (w *Waiting) Invalid(pod types.UID) []decision.InvalidAnnotation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry := w.pods[pod]; entry != nil {
		return entry.Wait.Invalid
	}
	return nil
}

// Why returns what was last logged of why the pod waits; empty if nothing was, or it is not waiting.
func (w *Waiting) Why(pod types.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry := w.pods[pod]; entry != nil {
		return entry.Wait.Why
	}
	return ""
}

// Forget forgets a pod that was deleted, and reports whether it waited.
func (w *Waiting) Forget(pod types.UID) (waited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waited = w.pods[pod]
	w.leave(pod)
	if of, bound := w.gangOf[pod]; bound {
		delete(w.gangOf, pod)
		w.gangs[of].bound--
		w.forgetIfGone(of)
	}
	return waited
}

// leave forgets a pod that does not wait any more, and wakes those from which nodes are held for it.
func (w *Waiting) leave(pod types.UID) {
	if entry := w.pods[pod]; entry != nil {
		w.drop(entry)
		if entry.ForOnDemand {
			w.wakeHeldSoon()
		}
	}
}

func (w *Waiting) drop(entry *waiter) {
	if entry.timer != nil {
		entry.timer.Stop()
	}
	delete(w.pods, entry.pod.UID)
	if entry.Held {
		dropWaiter(w.byOwner, heldKey, entry)
	}
	w.dropFloor(entry)
	for _, owner := range entry.Owners {
		dropWaiter(w.byOwner, owner, entry)
	}
	if g := w.gangs[entry.Gang]; g != nil && g.waiting[entry.pod.UID] == entry {
		delete(g.waiting, entry.pod.UID)
		w.forgetIfGone(entry.Gang)
	}
}

// Wake has one pod tried again.
func (w *Waiting) Wake(pod *v1.Pod) { w.wake(keyed(pod)) }

// WakeCountedSoon has the pods tried again in a second that fewer siblings may unblock. Calls within that second count as one.
func (w *Waiting) WakeCountedSoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.soon != nil || len(w.pods) == 0 {
		return
	}
	w.soon = w.clock.AfterFunc(time.Second, func() {
		w.mu.Lock()
		w.soon = nil
		w.mu.Unlock()
		w.wakeAll(func() map[types.UID]*waiter { return w.pods }, func(entry *waiter) bool { return entry.Counted })
	})
}

// wakeAll wakes some of the entries. It calls wake without holding the lock: the queue has a lock of its own.
func (w *Waiting) wakeAll(entries func() map[types.UID]*waiter, which func(*waiter) bool) {
	w.mu.Lock()
	pods := map[string]*v1.Pod{}
	for _, entry := range entries() {
		if which(entry) {
			pods[entry.pod.Namespace+"/"+entry.pod.Name] = entry.pod
		}
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		w.wake(pods)
	}
}

// ForOnDemand returns how many pods wait for on-demand room because the policy keeps them off spot, and how long the one of them has
// waited that was found unschedulable first; 0 without any.
func (w *Waiting) ForOnDemand() (pods int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, entry := range w.pods {
		if entry.ForOnDemand {
			pods++
			longest = max(longest, w.clock.Since(entry.since))
		}
	}
	return pods, longest
}

func keyed(pod *v1.Pod) map[string]*v1.Pod {
	return map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod}
}
