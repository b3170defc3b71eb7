package report

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// noteKept adds reasons that only concern a workload whose pods keep their scheduler. hidden is
// gating.HiddenNode.
func (s *Status) noteKept(v *View, w *snapshot.Workload, hidden *v1.Node) {
	if expired := w.CountPods(func(p *snapshot.Pod) bool {
		return v.Scope.KeepsScheduler(p.Pod) && p.Annotations[spot.AssignedAnnotation] == spot.GateExpired
	}); expired > 0 {
		s.note(OK, "%s scheduled without a decision of the controller: the gate expired", Count(expired, "pod was", "pods were"))
	}
	if w.Floor > 0 && hidden != nil {
		s.note(AtRisk, "new pods of the floor do not require on-demand: no label that node affinity can express marks node %s as spot",
			hidden.Name)
	}
	if w.Floor > 0 && w.CountPods(func(p *snapshot.Pod) bool { return p.Subject != nil && p.Subject.Pod.SpreadByAffinity }) > 0 {
		s.note(OK, "its floor is only a preference: a topology spread constraint counts only the nodes that required affinity admits")
	}
}

// applies reports whether the policy applies to a pod. If not, it sets the answer to the reason.
func (v *View) applies(e *Explanation, pod *v1.Pod) bool {
	switch {
	case !workload.PolicyApplies(pod):
		e.Answer = "the policy does not apply to it: pods of DaemonSets and static pods are bound to their nodes"
	case !v.Scope.Includes(pod):
		e.Answer = fmt.Sprintf("the policy does not apply to it: its schedulerName is %q, not %q, and it does not opt in with the label %s: %s",
			pod.Spec.SchedulerName, v.Scope.Profile, spot.OptInLabel, spot.KeepScheduler)
		e.Answer = strings.Join(append([]string{e.Answer}, v.ignoredOptIns(pod)...), "; ")
	default:
		return true
	}
	return false
}

// placedBy names the scheduler of a pod that keeps it, and what the controller decided before.
func placedBy(p *snapshot.Pod) string {
	decided := "no decision of the controller is recorded"
	assigned := p.Annotations[spot.AssignedAnnotation]
	if p.Subject.Pod.Assigned != decision.Unassigned || strings.HasPrefix(assigned, "none: ") {
		decided = fmt.Sprintf("the recorded decision of the controller is %q", assigned)
	}
	return fmt.Sprintf("scheduler %q places it; %s", p.Spec.SchedulerName, decided)
}
