package cluster

import "k8s.io/apimachinery/pkg/types"

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

// Motions returns what is on the move, by Workload.UID; a workload that is settled is not in it.
func (s *Snapshot) Motions() map[types.UID]Motion {
	motions := map[types.UID]Motion{}
	byRevision := map[types.UID]types.UID{}
	for _, w := range s.Workloads {
		var m Motion
		live := 0
		for _, r := range w.Revisions {
			byRevision[r.UID] = w.UID
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
			motions[w.UID] = m
		}
	}
	for _, p := range s.Pods {
		switch {
		case p.Release != nil:
			if uid, ok := byRevision[p.Release.ReplicaSetUID]; ok {
				m := motions[uid]
				m.Released++
				motions[uid] = m
			}
		case p.DeletionTimestamp != nil && p.Workload != nil:
			m := motions[p.Workload.UID]
			m.Terminating++
			motions[p.Workload.UID] = m
		}
	}
	return motions
}
