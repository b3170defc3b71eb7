package snapshot

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// PodsInTransition counts the pods that are on the move in a workload.
type PodsInTransition struct {
	// Released and Terminating count the pods that are leaving.
	Released, Terminating int
	// Waiting counts the live pods that are not bound to an existing node. Missing counts the pods
	// that the controller of the workload has not created yet. It is 0 unless the workload is Ours,
	// because the replica count of others is unknown.
	Waiting, Missing int
}

// Leaving reports whether a pod of the workload is leaving.
func (m PodsInTransition) Leaving() bool { return m.Released+m.Terminating > 0 }

// PodsInTransition returns the motion of each workload by Workload.Key. It omits workloads without
// motion.
func (s *Snapshot) PodsInTransition() map[workload.OwnerKey]PodsInTransition {
	motions := map[workload.OwnerKey]PodsInTransition{}
	for _, w := range s.Workloads {
		var m PodsInTransition
		live := 0
		for _, r := range w.Revisions {
			live += len(r.Pods)
			for _, p := range r.Pods {
				if p.Node == nil {
					m.Waiting++
				}
			}
		}
		if w.InProfile {
			m.Missing = max(0, w.Desired-live)
		}
		if m != (PodsInTransition{}) {
			motions[w.Key] = m
		}
	}
	for _, p := range s.Pods {
		switch {
		case p.ReleasedFrom != nil:
			m := motions[p.ReleasedFrom.Workload.Key]
			m.Released++
			motions[p.ReleasedFrom.Workload.Key] = m
		case p.DeletionTimestamp != nil && p.Workload != nil:
			m := motions[p.Workload.Key]
			m.Terminating++
			motions[p.Workload.Key] = m
		}
	}
	return motions
}
