package extender

import (
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recordPlacement counts a placement, and records an event if it is a deliberate exception.
func (e *Extender) recordPlacement(pod *v1.Pod, placement *placement) {
	profilemetrics.RecordPlacement(e.profile, placement.capacity, placement.outcome)
	if exception, ok := workload.ExceptionOf(placement.outcome); ok {
		e.recorder.Eventf(pod, nil, exception.Type, exception.Reason, "Binding", "%s (node %s; %s)",
			exception.Note, pod.Spec.NodeName, placement.pending.plan.BudgetUsage())
	}
}

// reportInvalid reports ignored annotations.
func (e *Extender) reportInvalid(pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	profilemetrics.RecordInvalidAnnotations(e.profile, len(invalid))
	e.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonInvalidPolicy, "Scheduling", "%s", workload.InvalidNote(invalid))
}
