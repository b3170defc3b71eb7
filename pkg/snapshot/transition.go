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
}

// Leaving reports whether a pod of the workload is leaving.
func (m PodsInTransition) Leaving() bool { return m.Released+m.Terminating > 0 }

// PodsInTransition returns the pods in transition of each workload by Workload.Key. It omits
// workloads without any.
func (s *Snapshot) PodsInTransition() map[workload.OwnerKey]PodsInTransition {
	transitions := map[workload.OwnerKey]PodsInTransition{}
	for _, w := range s.Workloads {
		var m PodsInTransition
		live, notCreated := 0, 0
		for _, r := range w.Revisions {
			live += len(r.Pods)
			if r.ReplicaSet != nil {
				notCreated += max(0, workload.Replicas(r.ReplicaSet.Spec.Replicas)-len(r.Pods))
			}
			for _, p := range r.Pods {
				if p.Node == nil {
					m.Waiting++
				}
			}
		}
		if w.InScope {
			m.Missing = max(0, w.Desired-live, notCreated)
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
