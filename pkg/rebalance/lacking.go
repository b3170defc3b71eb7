package rebalance

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// noteLacking notes since when each workload has had replicas that wait for a node, or that are
// missing.
func (m *memory) noteLacking(motions map[kube.OwnerKey]cluster.Motion, now time.Time) {
	for key := range m.lacking {
		if lacking(motions[key]) == 0 {
			delete(m.lacking, key)
		}
	}
	for key, motion := range motions {
		if _, known := m.lacking[key]; !known && lacking(motion) > 0 {
			m.lacking[key] = now
		}
	}
}

// lacking returns how many replicas of a workload do not run.
func lacking(m cluster.Motion) int { return m.Waiting + m.Missing }

// stuck reports whether the workload has lacked replicas for so long that they must not keep its
// others where they are: a quota refuses them, or a claim is not bound. It is not while the end of
// a move is open: what that has made it lack must not be made more. Nor is it if replicas are
// missing and a move evicts first: where a replica cannot be made, an evicted one may not be made
// again either.
func (r *round) stuck(w *cluster.Workload) bool {
	if r.motions[w.Key].Missing > 0 && w.Kind != "Deployment" && w.Kind != "ReplicaSet" {
		return false
	}
	since, lacks := r.lacking[w.Key]
	a := r.attempts[w.Key]
	return lacks && r.now.Sub(since) >= startsWithin && (a == nil || a.gone.IsZero())
}

// settled reports whether the workload of an attempt is in motion no more than it was when the
// attempt began.
func (r *round) settled(w *cluster.Workload, a *attempt) bool {
	motion := r.motions[w.Key]
	return !motion.Leaves() && lacking(motion) <= a.lacking
}
