package extender

import (
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recordPlacement counts a placement, and records an event if it is a deliberate exception.
func (e *Extender) recordPlacement(pod *v1.Pod, placement *placement) {
	profilemetrics.RecordPlacement(e.profile, placement.capacity, placement.outcome)
	workload.RecordException(e.recorder, pod, placement.outcome, pod.Spec.NodeName, &placement.pending.plan)
}

// reportInvalid reports ignored annotations.
func (e *Extender) reportInvalid(pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	profilemetrics.RecordInvalidAnnotations(e.profile, len(invalid))
	workload.RecordInvalid(e.recorder, pod, invalid)
}
