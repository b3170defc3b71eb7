package rebalance

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// assignRunning replaces pods that make up a floor on on-demand, and do not require on-demand: they are from before the autoscaler mode was
// switched on. Autoscalers see no reason for their places, and would move them to spot. Nothing is wrong with such a pod yet, so one that would lose
// data on its node is left alone, and every other replica must be ready.
func (r *round) assignRunning() {
	r.toOnDemand(migration.Assign, r.assignable, r.running)
}

// assignable returns how many pods of a workload should require on-demand if one of it may be replaced now, else 0.
func (r *round) assignable(w *cluster.Workload) (lacks int) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if w.RollingOut || deficit(w) > 0 || !r.free(w, false) || !r.wouldBeGated(w) {
		return 0
	}
	return unassigned(w)
}

// wouldBeGated reports whether the replacement of a pod would be assigned a capacity type: the youngest of the pods that were not is older than
// the admission policy. Otherwise replacing pods would never end.
func (r *round) wouldBeGated(w *cluster.Workload) bool {
	var youngest time.Time
	for _, revision := range w.Revisions {
		for _, p := range revision.Pods {
			if made := p.CreationTimestamp.Time; made.After(youngest) && kube.AssignmentOf(p.Pod) == decision.Unassigned && !kube.Gated(p.Pod) {
				youngest = made
			}
		}
	}
	return r.settings.WouldBeGated == nil || r.settings.WouldBeGated(youngest)
}

// unassigned returns how many pods of a workload on on-demand should require that, and do not.
func unassigned(w *cluster.Workload) (lacks int) {
	if w.Settings.WhenUnsatisfiable == decision.ScheduleAnyway {
		return 0 // the floor is a preference, and no replica requires anything
	}
	for _, revision := range w.Revisions {
		running, assigned, ordered := 0, 0, false
		for _, p := range revision.Pods {
			ordered = p.Subject.Pod.Workload.Ordered
			switch {
			case p.Subject.Pod.OnlyOnDemand:
				assigned++
			case unassignedOn(p):
				running++
			}
		}
		if !ordered {
			running = min(running, max(0, w.Floor-assigned))
		}
		lacks += running
	}
	return lacks
}

// unassignedOn reports whether a pod is on on-demand, may be one of the floor and does not require on-demand.
func unassignedOn(p *cluster.Pod) bool {
	pod := &p.Subject.Pod
	return on(p, decision.OnDemand) && !pod.OnlyOnDemand && !pod.OnlySpot && (!pod.Workload.Ordered || belowFloor(p))
}

// running returns the pods of a workload that may be replaced by ones that require on-demand, in the order in which they are tried; as in ill, of
// those that are counted one a revision.
func (r *round) running(w *cluster.Workload) (pods []*cluster.Pod) {
	for _, revision := range w.Revisions {
		for _, p := range r.candidates(revision, decision.OnDemand) {
			if !unassignedOn(p) || !spared(p) || !r.settings.MoveLocalStorage && kube.LosesLocalData(p.Pod) {
				continue
			}
			pods = append(pods, p)
			if w.StatefulSet == nil {
				break
			}
		}
	}
	return pods
}
