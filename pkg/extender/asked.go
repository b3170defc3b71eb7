package extender

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// asked is what is known of a pod that was asked about and is not known to be bound yet.
type asked struct {
	pod      types.NamespacedName
	uid      types.UID
	revision kube.OwnerKey
	last     time.Time // when it was last asked about

	// approvals is how often an answer let the pod go somewhere.
	approvals int
	// spot: one of these answers, or a nomination, let it go to spot. It counts as one that is there, because a binding may be under way
	// whatever was answered since. pools are the spot pools that it may be in, where a cap makes that matter.
	spot  bool
	pools map[decision.SpreadPool]bool
	// onDemand: the last answer sent it to on-demand.
	onDemand bool

	// preempts is until when the pod counts on claims because of an answer to a preemption: by then the watch shows whether it was nominated.
	preempts time.Time
	claims   decision.CapacityType

	// plan is the last one that was made for the pod, and inPool where its siblings on spot were then.
	plan   decision.Plan
	inPool map[decision.SpreadPool]int

	// since is when the pod was first refused everywhere; zero if it never was.
	since time.Time
	// forOnDemand: the last answer refused it everywhere, and the policy keeps it off spot.
	forOnDemand bool
	// invalid are the annotations that were reported as ignored.
	invalid []decision.InvalidAnnotation
}

// register holds the pods that were asked about. Its methods may be called concurrently; an entry is not changed, another one takes its
// place.
type register struct {
	mu         sync.Mutex
	pods       map[types.UID]*asked
	byRevision map[kube.OwnerKey]map[types.UID]*asked
}

func newRegister() *register {
	return &register{pods: map[types.UID]*asked{}, byRevision: map[kube.OwnerKey]map[types.UID]*asked{}}
}

// get returns the entry of a pod, nil if it has none.
func (r *register) get(pod types.UID) *asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[pod]
}

// put adds the entry of a pod, in the place of an older one.
func (r *register) put(entry *asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(entry.uid)
	r.pods[entry.uid] = entry
	of := r.byRevision[entry.revision]
	if of == nil {
		of = map[types.UID]*asked{}
		r.byRevision[entry.revision] = of
	}
	of[entry.uid] = entry
}

// forget drops the entry of a pod and returns it, nil if it had none.
func (r *register) forget(pod types.UID) *asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drop(pod)
}

func (r *register) drop(pod types.UID) *asked {
	entry := r.pods[pod]
	if entry == nil {
		return nil
	}
	delete(r.pods, pod)
	delete(r.byRevision[entry.revision], pod)
	if len(r.byRevision[entry.revision]) == 0 {
		delete(r.byRevision, entry.revision)
	}
	return entry
}

// count adds what the other pods of a revision were approved for, or may preempt for, to where its pods are.
func (r *register) count(revision kube.OwnerKey, except types.UID, now time.Time, s *siblings) {
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
		// A pod that may be on either is not on both. On spot it counts for safety, on on-demand for what others had better take.
		if entry.onDemand {
			s.placed.OnDemand++
		}
		if !entry.approved() && now.Before(entry.preempts) {
			s.placed.Add(entry.claims, 1)
		}
	}
}

func (a *asked) approved() bool { return a.spot || a.onDemand }

// counts reports whether count counts the pod.
func (r *register) counts(pod types.UID, now time.Time) bool {
	entry := r.get(pod)
	return entry != nil && (entry.approved() || now.Before(entry.preempts))
}

// all returns copies of all entries, in no order.
func (r *register) all() []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]asked, 0, len(r.pods))
	for _, entry := range r.pods {
		all = append(all, *entry)
	}
	return all
}

// numbers returns how many pods are approved and not known to be bound, and how many wait for on-demand because of the policy.
func (r *register) numbers() (approved, forOnDemand int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, entry := range r.pods {
		approved += count(entry.approved())
		forOnDemand += count(entry.forOnDemand)
	}
	return approved, forOnDemand
}
