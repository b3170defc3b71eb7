package rebalance

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recordUnavailable records since when each workload has had replicas that wait for a node or are
// missing.
func (m *memory) recordUnavailable(motions map[workload.OwnerKey]snapshot.PodsInTransition, now time.Time) {
	for key := range m.unavailableSince {
		if unavailable(motions[key]) == 0 {
			delete(m.unavailableSince, key)
		}
	}
	for key, motion := range motions {
		if _, known := m.unavailableSince[key]; !known && unavailable(motion) > 0 {
			m.unavailableSince[key] = now
		}
	}
}

// unavailable returns the number of replicas of a workload that do not run.
func unavailable(m snapshot.PodsInTransition) int { return m.Waiting + m.Missing }

// stuck reports whether replicas of the workload have been unavailable for so long that its other
// replicas may be moved. Possible causes are a quota that rejects replicas, or an unbound claim. A
// workload is not stuck while the outcome of a move is open, because the move itself may have made
// the replica unavailable. It is not stuck either if replicas are missing and a move evicts first:
// if a replica cannot be created, the replacement of an evicted pod may not be created either.
func (r *round) stuck(w *snapshot.Workload) bool {
	if r.motions[w.Key].Missing > 0 && w.Kind != "Deployment" && w.Kind != "ReplicaSet" {
		return false
	}
	since, isUnavailable := r.unavailableSince[w.Key]
	a := r.attempts[w.Key]
	return isUnavailable && r.now.Sub(since) >= startupTimeout && (a == nil || a.goneSince.IsZero())
}

// settled reports whether no more replicas of the workload are unavailable than when the attempt
// began, and none is leaving.
func (r *round) settled(w *snapshot.Workload, a *attempt) bool {
	motion := r.motions[w.Key]
	return !motion.Leaving() && unavailable(motion) <= a.unavailableBefore
}
