package extender

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// askedPod is a pod that the scheduler asked about and that is not known to run on a known node
// yet.
type askedPod struct {
	pod       *v1.Pod
	revision  workload.OwnerKey // set by askedPods.put
	lastAsked time.Time
	// answers counts the answers that let the scheduler place the pod. plan and inPools, the number
	// of siblings in capped pools, belong to the last answer.
	answers int
	plan    decision.Plan
	inPools map[decision.SpreadPool]int
	// onSpot reports whether an answer, or a nomination, allowed a spot node. Such a pod counts as
	// one on spot, because a binding may be in progress regardless of later answers. If the
	// workload caps its pools, pools lists the spot pools that the pod may be in.
	onSpot bool
	pools  []decision.SpreadPool
	// onDemand reports whether the last answer sent the pod to on-demand.
	onDemand bool

	// claim is how the pod counts until claimUntil because of an answer to a preemption request. By
	// then the watch shows whether the scheduler nominated the pod. A pod that was bound to an
	// unknown node has a claim too. The watches of pods and nodes are not ordered, so the node may
	// be new. If it is still unknown at claimUntil, the node and its pods are deleted.
	claim       decision.PlacedPods
	claimUntil  time.Time
	unknownNode string
	// invalid lists the annotations that were reported as ignored.
	invalid []decision.InvalidAnnotation
}

// approved reports whether an answer let the scheduler place the pod.
func (p *askedPod) approved() bool { return p.onSpot || p.onDemand }

// allow records that the scheduler may place the pod in these pools.
func (p *askedPod) allow(pools []decision.SpreadPool, plan *decision.Plan) {
	isOn := func(capacity decision.CapacityType) bool {
		return slices.ContainsFunc(pools, func(pool decision.SpreadPool) bool { return pool.Capacity == capacity })
	}
	// A pod that may run on either capacity type does not run on both. It probably gets the type
	// that it prefers. For safety it counts on spot in any case.
	p.onDemand = isOn(decision.OnDemand) && (!isOn(decision.Spot) || plan.Prefer == decision.OnDemand)
	p.onSpot = p.onSpot || isOn(decision.Spot)
	for _, pool := range pools {
		if plan.PoolCap > 0 && pool.Capacity == decision.Spot && !slices.Contains(p.pools, pool) {
			p.pools = append(p.pools, pool)
		}
	}
}

// counts returns how the pod counts at now. It returns false if it does not count.
func (p *askedPod) counts(cluster *placement.Cluster, now time.Time) (placement.UnboundPod, bool) {
	as := placement.UnboundPod{Pod: p.pod, Pools: p.pools}
	if p.onSpot {
		as.Approved.Spot = 1
	}
	if p.onDemand { // other pods must not use the same room
		as.Approved.OnDemand = 1
	}
	if p.approved() {
		return as, true
	}
	as.Approved = p.claim
	return as, now.Before(p.claimUntil) && !cluster.HasNode(p.unknownNode)
}

// askedPods contains the pods that the scheduler asked about, by revision too.
type askedPods struct {
	pods       map[types.UID]*askedPod
	byRevision workload.Groups[workload.OwnerKey, *askedPod]
}

// put adds a pod of a revision, or replaces its entry.
func (a *askedPods) put(revision workload.OwnerKey, p *askedPod) {
	a.forget(p.pod.UID)
	p.revision = revision
	a.pods[p.pod.UID] = p
	a.byRevision.Put(revision, p.pod.UID, p)
}

// forget removes a pod and returns it, or nil if it was not there.
func (a *askedPods) forget(uid types.UID) *askedPod {
	p := a.pods[uid]
	if p != nil {
		delete(a.pods, uid)
		a.byRevision.Delete(p.revision, uid)
	}
	return p
}
