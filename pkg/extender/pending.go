package extender

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// pendingPod is the state of a pod that the scheduler asked about and that is not known to be bound
// yet.
type pendingPod struct {
	pod       types.NamespacedName
	uid       types.UID
	revision  workload.OwnerKey
	lastAsked time.Time // when the scheduler last asked about it

	// approvals counts the answers that let the scheduler place the pod.
	approvals int
	// spot reports whether an answer, or a nomination, allowed a spot node. Such a pod
	// counts as one on spot, because a binding may be in progress regardless of later answers. If
	// the workload caps its pools, pools lists the spot pools that the pod may be in.
	spot  bool
	pools map[decision.SpreadPool]bool
	// onDemand reports whether the last answer sent the pod to on-demand.
	onDemand bool

	// Until claimUntil, the pod counts on claimedType because of an answer to a preemption
	// request. By then the watch shows whether the scheduler nominated the pod.
	claimUntil  time.Time
	claimedType decision.CapacityType

	// plan is the last plan for the pod. inPool has its siblings on spot by pool at that time.
	plan   decision.Plan
	inPool map[decision.SpreadPool]int

	// since is when the pod was first found unschedulable, by the scheduler or the policy.
	since time.Time
	// forOnDemand reports whether the last answer refused all nodes and the policy keeps the pod
	// off spot.
	forOnDemand bool
	// invalid lists the annotations that were reported as ignored.
	invalid []decision.InvalidAnnotation
}

// pendingPods stores the pods that the scheduler asked about. It is safe for concurrent use. An
// entry never changes; put replaces it.
type pendingPods struct {
	mu         sync.Mutex
	pods       map[types.UID]*pendingPod
	byRevision workload.Groups[workload.OwnerKey, *pendingPod]
}

func newPendingPods() *pendingPods {
	return &pendingPods{pods: map[types.UID]*pendingPod{}, byRevision: workload.Groups[workload.OwnerKey, *pendingPod]{}}
}

// get returns the entry of a pod, or nil if it has none.
func (r *pendingPods) get(pod types.UID) *pendingPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[pod]
}

// put adds or replaces the entry of a pod.
func (r *pendingPods) put(entry *pendingPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(entry.uid)
	r.pods[entry.uid] = entry
	r.byRevision.Put(entry.revision, entry.uid, entry)
}

// forget removes the entry of a pod and returns it, or nil if it had none.
func (r *pendingPods) forget(pod types.UID) *pendingPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(pod)
}

func (r *pendingPods) remove(pod types.UID) *pendingPod {
	entry := r.pods[pod]
	if entry == nil {
		return nil
	}
	delete(r.pods, pod)
	r.byRevision.Delete(entry.revision, pod)
	return entry
}

// addApprovals adds the approvals and preemption claims of the revision's other pods to s.
func (r *pendingPods) addApprovals(revision workload.OwnerKey, except types.UID, now time.Time, s *siblingCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, entry := range r.byRevision[revision] {
		if uid == except {
			continue
		}
		if entry.spot {
			s.placed.Spot++
		}
		for pool := range entry.pools {
			s.inPool[pool]++
		}
		// A pod that may run on either capacity type does not run on both. For safety it counts on
		// spot. It counts on on-demand so that other pods do not use the same room.
		if entry.onDemand {
			s.placed.OnDemand++
		}
		if !entry.approved() && now.Before(entry.claimUntil) {
			s.placed.Add(entry.claimedType, 1)
		}
	}
}

// approved reports whether an answer let the scheduler place the pod.
func (p *pendingPod) approved() bool { return p.spot || p.onDemand }

// isCounted reports whether addApprovals counts the pod.
func (r *pendingPods) isCounted(pod types.UID, now time.Time) bool {
	entry := r.get(pod)
	return entry != nil && (entry.approved() || now.Before(entry.claimUntil))
}

// all returns all entries, in no order.
func (r *pendingPods) all() []*pendingPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.pods))
}

// waitingForOnDemand returns the number of pods that wait for on-demand because of the policy, and
// the longest such wait at now.
func (r *pendingPods) waitingForOnDemand(now time.Time) (pods int, longest time.Duration) {
	for _, entry := range r.all() {
		if entry.forOnDemand {
			pods++
			longest = max(longest, now.Sub(entry.since))
		}
	}
	return pods, longest
}
