package rebalance

import (
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// podsToAssign returns the number of pods of a workload that should require on-demand, or 0 if none
// may be replaced now. These pods run on on-demand and make up a floor. They were created before
// the autoscaler mode was switched on. An autoscaler would move them to spot, because they do not
// require their capacity type. Nothing is wrong with such a pod yet. So a pod that would lose local
// data stays, and every other replica must be ready.
func (r *round) podsToAssign(w *snapshot.Workload) (pods int) {
	if w.FloorStatus().Healable > 0 || !r.mayMove(w, migration.Assign, false) || !r.gatesReplacements(w) {
		return 0
	}
	return unassigned(w)
}

// gatesReplacements reports whether the replacement of a pod would be assigned a capacity type. It
// would if every pod without a decision is older than the admission policy. Without this check,
// replacements would never end.
//
// A pod that keeps its scheduler may be younger than the policy, because it opted in later. With
// the webhook every pod may be, because it gates none while no controller is ready. Then the
// back-off ends the moves if replacements are not gated.
func (r *round) gatesReplacements(w *snapshot.Workload) bool {
	gates := r.settings.GatesReplacement
	if gates == nil {
		return true
	}
	anyAge := w.KeepsScheduler || r.settings.Gating.ServesWebhook()
	return gates(time.Time{}) && (anyAge || !anyPod(w, func(p *snapshot.Pod) bool {
		return p.Annotations[spot.AssignedAnnotation] == "" && !workload.Gated(p.Pod) && !gates(p.CreationTimestamp.Time)
	}))
}

// unassigned returns the number of pods on on-demand that should require on-demand but do not.
func unassigned(w *snapshot.Workload) (total int) {
	if w.Settings.WhenUnsatisfiable == decision.ScheduleAnyway {
		return 0 // the floor is a preference, so no replica requires a capacity type
	}
	for _, revision := range w.Revisions {
		running, assigned, ordered := 0, 0, false
		for _, p := range revision.Pods {
			ordered = p.Subject.Pod.Workload.Ordered
			switch {
			case p.Subject.Pod.OnlyOnDemand:
				assigned++
			case unassignedOnDemand(p):
				running++
			}
		}
		if !ordered {
			running = min(running, max(0, w.Floor-assigned))
		}
		total += running
	}
	return total
}

// unassignedOnDemand reports whether a pod runs on on-demand, may be part of the floor and does not
// require on-demand. No assignment makes a pod require it that has SpreadByAffinity, or whose
// affinity cannot exclude spot. A restored pod may be assigned to the floor without a requirement.
func unassignedOnDemand(p *snapshot.Pod) bool {
	pod := &p.Subject.Pod
	return runsOn(p, decision.OnDemand) && !pod.OnlyOnDemand && !pod.OnlySpot && !pod.SpreadByAffinity &&
		pod.Assigned != decision.AssignedOnDemand && (!pod.Workload.Ordered || inFloor(p)) &&
		!strings.Contains(p.Annotations[spot.AssignedAnnotation], spot.NotExcluded)
}

func requiresOnDemand(p *snapshot.Pod) bool { return p.Subject.Pod.OnlyOnDemand }

// assignCandidates returns the candidates of a workload that may be replaced by pods that require
// on-demand. Such a pod already runs on the right type. So the replacement must start first, and
// the requirement must be useful: an autoscaler may remove the node.
func (r *round) assignCandidates(w *snapshot.Workload) []*snapshot.Pod {
	return r.candidates(w.Revisions, decision.OnDemand, func(p *snapshot.Pod) bool {
		return unassignedOnDemand(p) && othersReady(p) && r.surges(p) && r.feasibility.MayRemove(p.Node) &&
			(r.settings.Rebalance.LocalStorage == controller.MoveLocalStorage || !workload.LosesLocalData(p.Pod))
	})
}
