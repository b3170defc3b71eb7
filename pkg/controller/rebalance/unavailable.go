package rebalance

import (
	"maps"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recordUnavailable records since when each workload has had replicas that wait for a node or are
// missing.
func (m *memory) recordUnavailable(transitions map[workload.OwnerKey]snapshot.PodsInTransition, now time.Time) {
	maps.DeleteFunc(m.unavailableSince, func(key workload.OwnerKey, _ time.Time) bool { return unavailable(transitions[key]) == 0 })
	for key, pods := range transitions {
		if _, known := m.unavailableSince[key]; !known && unavailable(pods) > 0 {
			m.unavailableSince[key] = now
		}
	}
}

// unavailable returns the number of replicas of a workload that do not run.
func unavailable(m snapshot.PodsInTransition) int { return m.Waiting + m.Missing }

// unavailableTooLong reports whether replicas of the workload have been unavailable for so long
// that its other replicas may be moved. Possible causes are a quota that rejects replicas, or an
// unbound claim. A workload does not count while the outcome of a move is open, because the move
// itself may have made the replica unavailable. It does not count either if replicas are missing
// and a move evicts first: if a replica cannot be created, the replacement of an evicted pod may
// not be created either.
func (r *round) unavailableTooLong(w *snapshot.Workload) bool {
	if r.transitions[w.Key].Missing > 0 && w.Kind != "Deployment" && w.Kind != "ReplicaSet" {
		return false
	}
	since, isUnavailable := r.unavailableSince[w.Key]
	a := r.attempts[w.Key]
	return isUnavailable && r.now.Sub(since) >= startupTimeout && (a == nil || a.goneSince.IsZero())
}

// settled reports whether no more replicas of the workload are unavailable than when the attempt
// began, and none is leaving.
func (r *round) settled(w *snapshot.Workload, a *attempt) bool {
	pods := r.transitions[w.Key]
	return !pods.Leaving() && unavailable(pods) <= a.unavailableBefore
}
