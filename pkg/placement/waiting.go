package placement

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// WaitingPods records the pods of one profile that were found unschedulable: since when, why, and
// when to retry them even without an event in the cluster. It exists in memory only. For a pod that
// an earlier leader found unschedulable, workload.WaitingSince returns when the wait began. All
// methods may be called concurrently.
type WaitingPods struct {
	clock clock.WithDelayedExecution
	wake  func(pods map[string]*v1.Pod)

	mu   sync.Mutex
	pods map[types.UID]*waitingPod
	// byOwner contains the waiting pods by each object that they wait for.
	byOwner workload.Groups[workload.OwnerKey, *waitingPod]
	// gangs contains the gangs that have waiting or bound pods. gangOf maps each bound pod to its
	// gang.
	gangs  map[Gang]*gangState
	gangOf map[types.UID]Gang
	// reservedTimer is set while a wake-up is pending for pods with Wait.NodeReserved. They are in
	// byOwner under reservedKey.
	reservedTimer clock.Timer
	// onDemandShapes contains the pods with Wait.ForOnDemand, by their shape: the text of their
	// requirements for a node.
	onDemandShapes workload.Groups[string, *waitingPod]
	// throttled contains the owners for which pods were woken within the last wakePeriod, with the
	// changes since then. See WakeOwned.
	throttled     map[workload.OwnerKey]*ownerChange
	batches       uint64      // how many batches of pods were woken
	siblingsTimer clock.Timer // set while WakeAllSiblingsSoon is pending
}

// Wait describes the changes that a pod waits for.
type Wait struct {
	// Owners are the objects whose change may unblock the pod.
	Owners []workload.OwnerKey
	// ForOnDemand means that the policy keeps the pod off spot.
	ForOnDemand bool
	// NodeReserved means that a node was reserved for pods that wait for on-demand capacity. The
	// policy would have admitted this pod otherwise.
	NodeReserved bool
	// DependsOnSiblings means that fewer siblings on spot, or on on-demand with overflow Never, may
	// unblock the pod.
	DependsOnSiblings bool
	// Why is the logged reason; empty if none was logged.
	Why string
	// RetryAt is when time alone may unblock the pod; the zero time for never.
	RetryAt time.Time
	// Gang is the gang of the pod; the zero Gang if it has none.
	Gang Gang
	// MayPreempt is State.MayPreempt of the last cycle; nil if that cycle had no State.
	MayPreempt *atomic.Bool
	// Attempt is the attempt in which the plan refused the nodes; nil if there was no plan.
	Attempt *Attempt
	// OwnerWait is set if the pod waits for its owner.
	OwnerWait *OwnerWait
}

// OwnerWait is the reason why a pod waits for its owner.
type OwnerWait struct {
	Owner workload.OwnerKey
	Why   string
	// Outdated is the known state of a workload, which has fewer desired replicas than pods. The
	// pod waits for an update of it until Until. Outdated is nil if the owner is unknown.
	Outdated *decision.Workload
	Until    time.Time
}

// Clone implements fwk.StateData. It returns w itself, which never changes.
func (w *OwnerWait) Clone() fwk.StateData { return w }

// Gang identifies pods of one revision and one PodGroup. They are scheduled all together or not at
// all, and they share one waiting time. The revision is part of the key because any user who may
// create pods may give them the label of any PodGroup.
type Gang struct {
	Revision workload.OwnerKey
	PodGroup string // namespace/name
}

type gangState struct {
	waiting map[types.UID]*waitingPod
	bound   int
	// scheduled means that a pod of the gang has been bound since the gang was first recorded.
	scheduled bool
}

type waitingPod struct {
	Wait
	pod   *v1.Pod
	since time.Time
	timer clock.Timer
	shape string // key in WaitingPods.onDemandShapes; "" if the pod is not in it
	// requirements are what shape describes; nil without a shape.
	requirements *workload.Requirements
	due          bool        // a change may unblock the pod, and it has not been woken since
	unblocked    atomic.Bool // see View.Unblocked
	lastBatch    uint64      // the number of the last batch with the pod; 0 if none
}

// NewWaitingPods returns an empty registry that retries pods by calling wake, which must not block.
func NewWaitingPods(c clock.WithDelayedExecution, wake func(pods map[string]*v1.Pod)) *WaitingPods {
	return &WaitingPods{
		clock:          c,
		wake:           wake,
		pods:           map[types.UID]*waitingPod{},
		byOwner:        workload.Groups[workload.OwnerKey, *waitingPod]{},
		gangs:          map[Gang]*gangState{},
		gangOf:         map[types.UID]Gang{},
		throttled:      map[workload.OwnerKey]*ownerChange{},
		onDemandShapes: workload.Groups[string, *waitingPod]{},
	}
}

// AddUnschedulable records that pod was found unschedulable now, and the changes that it waits for.
// It replaces an earlier record of the pod, but not the time at which its wait began, which an
// earlier leader may have recorded. It returns the earlier record; the zero Wait if there is none.
func (w *WaitingPods) AddUnschedulable(pod *v1.Pod, wait Wait) (last Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if wait.NodeReserved {
		wait.Owners = append(slices.Clip(wait.Owners), reservedKey)
	}
	entry := &waitingPod{Wait: wait, pod: pod, since: now}
	if since, waits := w.since(pod); waits {
		entry.since = since
	}
	old := w.pods[pod.UID]
	if old != nil {
		last, entry.lastBatch = old.Wait, old.lastBatch
	}
	if wait.Gang != (Gang{}) {
		w.gang(wait.Gang).waiting[pod.UID] = entry // before old is removed, which would remove a gang without pods
	}
	if old != nil {
		w.remove(old)
		if old.ForOnDemand && !wait.ForOnDemand {
			w.wakeReservedSoon()
		}
	}
	w.pods[pod.UID] = entry
	if wait.ForOnDemand {
		entry.shape, entry.requirements = shapeOf(pod), workload.NewRequirements(pod, nil, workload.RequestsOf(pod))
		w.onDemandShapes.Put(entry.shape, pod.UID, entry)
	}
	for _, owner := range wait.Owners {
		w.byOwner.Put(owner, pod.UID, entry)
	}
	if !wait.RetryAt.IsZero() {
		entry.timer = w.clock.AfterFunc(wait.RetryAt.Sub(now), func() {
			entry.unblocked.Store(true)
			w.wake(podsByKey(entry.pod))
		})
	}
	return last
}

// View is what the registry contains, at one moment, about a pod that is tried and about the pods
// that affect its decision.
type View struct {
	// Since is when the pod was first found unschedulable; the zero time if it never was.
	Since time.Time
	// GangSince is when the pod, or the first waiting pod of its gang, was first found
	// unschedulable; the zero time if none was.
	//
	// The pods of a gang share one waiting time because one pod without a node blocks the whole
	// gang, so the others are tried less often. With separate times, each pod of the floor would
	// begin its wait when that of the previous one ends. After the first pod of the gang is bound,
	// each pod has its own time: a replacement, or a pod beyond the gang's minimum, does not wait
	// for the others.
	GangSince time.Time
	// Last is the last Wait that was recorded for the pod; the zero Wait if it does not wait.
	Last Wait
	// Unblocked means that a change of an owner, or Wait.RetryAt, may have unblocked the pod since
	// its last attempt. The scheduling queue reports no event about either.
	Unblocked bool
	// MayPreempt means that preemption may have nominated a node for a waiting pod of the revision.
	MayPreempt bool
	// onDemandFits are the requirements of the other pods that wait for on-demand.
	onDemandFits []*workload.Requirements
}

// View returns what is known about pod. MayPreempt is set only if siblings is true, because finding
// it out takes time. For the same reason, the pods that wait for on-demand are read only if a node
// of counter may be reserved for them.
func (w *WaitingPods) View(pod *v1.Pod, gang Gang, siblings bool, counter *Counter) (v View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v.Since, _ = w.since(pod)
	v.GangSince = v.Since
	if g := w.gangs[gang]; g != nil && !g.scheduled {
		for _, entry := range g.waiting {
			if v.GangSince.IsZero() || entry.since.Before(v.GangSince) {
				v.GangSince = entry.since
			}
		}
	}
	if entry := w.pods[pod.UID]; entry != nil {
		v.Last, v.Unblocked = entry.Wait, entry.unblocked.Load()
	}
	if siblings {
		for _, entry := range w.byOwner[workload.RevisionOf(pod)] {
			if entry.MayPreempt != nil && entry.MayPreempt.Load() {
				v.MayPreempt = true
				break
			}
		}
	}
	if len(counter.settling) > 0 {
		v.onDemandFits = w.onDemandFits(pod.UID)
	}
	return v
}

// GangWaits reports whether pods of the gang wait and none of its pods has been bound since they
// were recorded.
func (w *WaitingPods) GangWaits(gang Gang) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gangs[gang]
	return g != nil && len(g.waiting) > 0 && !g.scheduled
}

// MarkBound removes a pod that was bound. If the pod is in a gang, the shared waiting time of the
// gang ends.
func (w *WaitingPods) MarkBound(pod types.UID, gang Gang) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopWaiting(pod)
	if _, known := w.gangOf[pod]; known || gang == (Gang{}) {
		return
	}
	g := w.gang(gang)
	g.scheduled = true
	g.bound++
	w.gangOf[pod] = gang
}

func (w *WaitingPods) gang(gang Gang) *gangState {
	g := w.gangs[gang]
	if g == nil {
		g = &gangState{waiting: map[types.UID]*waitingPod{}}
		w.gangs[gang] = g
	}
	return g
}

func (w *WaitingPods) removeIfEmpty(gang Gang) {
	if g := w.gangs[gang]; g != nil && g.bound == 0 && len(g.waiting) == 0 {
		delete(w.gangs, gang)
	}
}

// Since returns when the pod was first found unschedulable; false if it is not waiting.
func (w *WaitingPods) Since(pod *v1.Pod) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since(pod)
}

// since implements Since. The caller must hold w.mu.
func (w *WaitingPods) since(pod *v1.Pod) (time.Time, bool) {
	if entry := w.pods[pod.UID]; entry != nil {
		return entry.since, true
	}
	return workload.WaitingSince(pod, w.clock.Now())
}

// Delete removes a pod that was deleted and reports whether it was waiting.
func (w *WaitingPods) Delete(pod types.UID) (waited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waited = w.pods[pod]
	w.stopWaiting(pod)
	if gang, bound := w.gangOf[pod]; bound {
		delete(w.gangOf, pod)
		w.gangs[gang].bound--
		w.removeIfEmpty(gang)
	}
	return waited
}

// stopWaiting removes a pod that no longer waits. If a node may have been reserved for it,
// stopWaiting wakes the pods that this kept off the node.
func (w *WaitingPods) stopWaiting(pod types.UID) {
	if entry := w.pods[pod]; entry != nil {
		w.remove(entry)
		if entry.ForOnDemand {
			w.wakeReservedSoon()
		}
	}
}

func (w *WaitingPods) remove(entry *waitingPod) {
	if entry.timer != nil {
		entry.timer.Stop()
	}
	delete(w.pods, entry.pod.UID)
	w.onDemandShapes.Delete(entry.shape, entry.pod.UID)
	for _, owner := range entry.Owners {
		w.byOwner.Delete(owner, entry.pod.UID)
	}
	if g := w.gangs[entry.Gang]; g != nil && g.waiting[entry.pod.UID] == entry {
		delete(g.waiting, entry.pod.UID)
		w.removeIfEmpty(entry.Gang)
	}
}

// Wake retries one pod.
func (w *WaitingPods) Wake(pod *v1.Pod) { w.wake(podsByKey(pod)) }

// WakeAllSiblingsSoon retries, after one second, the pods that fewer siblings may unblock. Calls
// within that second count as one.
func (w *WaitingPods) WakeAllSiblingsSoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pods) > 0 {
		w.soon(&w.siblingsTimer, w.wakeAllSiblings)
	}
}

// wakeAllSiblings calls wake without the lock, because the scheduling queue has its own lock.
func (w *WaitingPods) wakeAllSiblings() {
	w.mu.Lock()
	pods := map[string]*v1.Pod{}
	for _, entry := range w.pods {
		if entry.DependsOnSiblings {
			pods[entry.pod.Namespace+"/"+entry.pod.Name] = entry.pod
		}
	}
	w.mu.Unlock()
	if len(pods) > 0 {
		w.wake(pods)
	}
}

// soon calls f after one second. It does nothing if timer is set, because such a call is pending.
// The caller must hold w.mu.
func (w *WaitingPods) soon(timer *clock.Timer, f func()) {
	if *timer != nil {
		return
	}
	*timer = w.clock.AfterFunc(time.Second, func() {
		w.mu.Lock()
		*timer = nil
		w.mu.Unlock()
		f()
	})
}

// ForOnDemand returns the number of pods that wait for on-demand capacity because the policy keeps
// them off spot. It also returns the longest time since such a pod was first found
// unschedulable; 0 without any.
func (w *WaitingPods) ForOnDemand() (pods int, longest time.Duration) {
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

func podsByKey(pod *v1.Pod) map[string]*v1.Pod {
	return map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod}
}
