package cluster

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Motion counts what keeps a workload from being settled.
type Motion struct {
	// Released and Terminating count its pods that are on their way out.
	Released, Terminating int
	// Waiting counts its live pods that stand on no node that exists, Missing the pods that its controller still has to make (only for a
	// workload that is Ours: nobody else's replica count is known).
	Waiting, Missing int
}

// Leaves reports whether a pod of the workload is on its way out.
func (m Motion) Leaves() bool { return m.Released+m.Terminating > 0 }

// Motions returns what is on the move, by Workload.Key; a workload that is settled is not in it.
func (s *Snapshot) Motions() map[kube.OwnerKey]Motion {
	motions := map[kube.OwnerKey]Motion{}
	for _, w := range s.Workloads {
		var m Motion
		live := 0
		for _, r := range w.Revisions {
			live += len(r.Pods)
			for _, p := range r.Pods {
				if p.Node == nil {
					m.Waiting++
				}
			}
		}
		if w.Ours {
			m.Missing = max(0, w.Desired-live)
		}
		if m != (Motion{}) {
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
