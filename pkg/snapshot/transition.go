package snapshot

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// PodsInTransition counts the pods that are on the move in a workload.
type PodsInTransition struct {
	// Released and Terminating count the pods that are leaving.
	Released, Terminating int
	// Waiting counts the live pods that are not bound to an existing node. Missing counts the pods
	// that the controller of the workload, or a ReplicaSet of it, has not created yet. In a rollout
	// the ReplicaSets may want more pods than the workload: then only they show that pods are
	// missing. It is 0 unless the workload is InScope, because the replica count of others is
	// unknown.
	Waiting, Missing int
	// Excess counts the live pods that the controller of the workload, or a ReplicaSet of it, is
	// about to delete, because it was scaled down. Which ones is not known yet. It is 0 unless the
	// workload is InScope, as Missing.
	Excess int
}

// Leaving reports whether a pod of the workload is leaving.
func (m PodsInTransition) Leaving() bool { return m.Released+m.Terminating > 0 }

// PodsInTransition returns the pods in transition of each workload by Workload.Key. It omits
// workloads without any.
func (s *Snapshot) PodsInTransition() map[workload.OwnerKey]PodsInTransition {
	transitions := map[workload.OwnerKey]PodsInTransition{}
	for _, w := range s.Workloads {
		var m PodsInTransition
		live, notCreated, notDeleted := 0, 0, 0
		for _, r := range w.Revisions {
			live += len(r.Pods)
			if r.ReplicaSet != nil {
				missing := workload.Replicas(r.ReplicaSet.Spec.Replicas) - len(r.Pods)
				notCreated, notDeleted = notCreated+max(0, missing), notDeleted+max(0, -missing)
			}
			for _, p := range r.Pods {
				if p.Node == nil {
					m.Waiting++
				}
			}
		}
		if w.InScope {
			m.Missing, m.Excess = max(0, w.Desired-live, notCreated), notDeleted
			if !w.RollingOut { // in a rollout there may be more pods than replicas
				m.Excess = max(m.Excess, live-w.Desired)
			}
		}
		if m != (PodsInTransition{}) {
			transitions[w.Key] = m
		}
	}
	for _, p := range s.Pods {
		w := p.OwnWorkload()
		if w == nil || p.ReleasedFrom == nil && p.DeletionTimestamp == nil {
			continue
		}
		m := transitions[w.Key]
		if p.ReleasedFrom != nil {
			m.Released++
		} else {
			m.Terminating++
		}
		transitions[w.Key] = m
	}
	return transitions
}
