package extender

import (
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// placed counts a placement, and records an event where it is a deliberate exception.
func (e *Extender) placed(pod *v1.Pod, at *place) {
	placements.WithLabelValues(e.profile, at.capacity.String(), string(at.outcome)).Inc()
	if exception, ok := kube.ExceptionOf(at.outcome); ok {
		e.recorder.Eventf(pod, nil, exception.Type, exception.Reason, "Binding", "%s (node %s; %s)",
			exception.Note, pod.Spec.NodeName, at.asked.plan.Budgeted())
	}
}

// reportInvalid tells that annotations were ignored.
func (e *Extender) reportInvalid(pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	invalidAnnotations.WithLabelValues(e.profile).Add(float64(len(invalid)))
	e.recorder.Eventf(pod, nil, v1.EventTypeWarning, kube.ReasonInvalidPolicy, "Scheduling", "%s", kube.InvalidNote(invalid))
}
