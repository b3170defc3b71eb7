package snapshot

import "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"

// FloorStatus compares the live pods of the workload, by capacity type, with its floor.
func (w *Workload) FloorStatus() decision.FloorStatus { return w.floorStatusOf(w.Revisions) }

// FloorStatus returns the status of the workload if it had no other revision.
func (r *Revision) FloorStatus() decision.FloorStatus {
	return r.Workload.floorStatusOf([]*Revision{r})
}

func (w *Workload) floorStatusOf(revisions []*Revision) decision.FloorStatus {
	replicas := make([][]decision.Replica, len(revisions))
	ordered := false
	for i, r := range revisions {
		for _, p := range r.Pods {
			subject := &p.Subject.Pod
			ordered = subject.Workload.Ordered
			replica := decision.Replica{Ordinal: subject.Workload.Ordinal, Exempt: w.Settings.Exempts(subject), OnlySpot: subject.OnlySpot}
			if p.Node != nil {
				replica.Bound, replica.Capacity = true, p.Node.Facts.Capacity.Type
			}
			replicas[i] = append(replicas[i], replica)
		}
	}
	return decision.NewFloorStatus(w.Desired, w.Floor, ordered, replicas)
}
