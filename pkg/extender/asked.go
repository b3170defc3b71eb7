package extender

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// maxApproval is the time for which an approval of a pending pod counts. A binding takes at most 25
// minutes: a Permit plugin may delay a pod for 15 minutes, and its volumes for 10.
const maxApproval = 30 * time.Minute

// askedPod is a pod that the scheduler asked about and that is not known to run on a known node
// yet.
type askedPod struct {
	pod       *v1.Pod
	revision  workload.OwnerKey
	lastAsked time.Time
	// answers counts the answers that let the scheduler place the pod. plan and inPools, the number
	// of siblings in capped pools, belong to the last answer.
	answers int
	plan    decision.Plan
	inPools map[decision.SpreadPool]int
	// approval is how the pod counts because of the answers. It counts as one on spot if any answer
	// allowed a spot node, because a binding may be in progress regardless of later answers. It
	// counts as one on on-demand if the last answer sent it there. If the workload caps its pools,
	// pools lists the spot pools that the pod may be in.
	approval decision.PlacedPods
	pools    []decision.SpreadPool

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

// approved reports whether an answer let the scheduler place the pod, and the scheduler may still
// be binding the pod because of it.
func (p *askedPod) approved(now time.Time) bool {
	return p.approval != (decision.PlacedPods{}) && now.Sub(p.lastAsked) < maxApproval
}

// allow records that the scheduler may place the pod in these pools.
func (p *askedPod) allow(pools []decision.SpreadPool, plan *decision.Plan) {
	isOn := func(capacity decision.CapacityType) bool {
		return slices.ContainsFunc(pools, func(pool decision.SpreadPool) bool { return pool.Capacity == capacity })
	}
	// A pod that may run on either capacity type does not run on both. It probably gets the type
	// that it prefers. For safety it counts on spot in any case.
	p.approval.OnDemand = 0
	if isOn(decision.OnDemand) && (!isOn(decision.Spot) || plan.Prefer == decision.OnDemand) {
		p.approval.OnDemand = 1 // other pods must not use the same room
	}
	if isOn(decision.Spot) {
		p.approval.Spot = 1
	}
	for _, pool := range pools {
		if plan.PoolCap > 0 && pool.Capacity == decision.Spot && !slices.Contains(p.pools, pool) {
			p.pools = append(p.pools, pool)
		}
	}
}

// counts returns how the pod counts at now. It returns false if it does not count.
func (p *askedPod) counts(cluster *placement.Cluster, now time.Time) (placement.UnboundPod, bool) {
	if p.approved(now) {
		return placement.UnboundPod{Pod: p.pod, Pools: p.pools, Approved: p.approval}, true
	}
	return placement.UnboundPod{Pod: p.pod, Approved: p.claim}, now.Before(p.claimUntil) && !cluster.HasNode(p.unknownNode)
}
