package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// exceptions contains the events for outcomes that are a deliberate exception to the policy.
var exceptions = map[decision.Outcome]struct{ kind, reason, note string }{
	decision.ByExemption: {v1.EventTypeNormal, spot.ReasonExempt,
		"placed on spot despite its floor: the pod's own constraints admit only spot"},
	decision.ByFallback: {v1.EventTypeWarning, spot.ReasonFellBack,
		"placed on spot over its budget or cap: no other node could run it, or none had room within fallbackAfter"},
	decision.ByRolloutRelief: {v1.EventTypeWarning, spot.ReasonRolloutRelief,
		"placed on spot to let the rollout finish: older replicas of its workload occupy the on-demand capacity"},
	decision.ByScheduleAnyway: {v1.EventTypeWarning, spot.ReasonScheduledAnyway,
		"placed on spot over its budget or cap: whenUnsatisfiable is ScheduleAnyway"},
}

// RecordException records an event for a pod that was placed on node, if outcome is a deliberate
// exception to its policy. plan is nil if another scheduler placed the pod.
func RecordException(recorder events.EventRecorder, pod *v1.Pod, outcome decision.Outcome, node string, plan *decision.Plan) {
	if e, ok := exceptions[outcome]; ok {
		usage, note := "", e.note+ResourcesNote(pod)
		if plan != nil {
			usage = "; " + plan.BudgetUsage()
		}
		recorder.Eventf(pod, nil, e.kind, e.reason, "Binding", "%s (node %s%s)", note, node, usage)
	}
}

// RecordInvalid records an event for the ignored annotations of a pod. invalid must not be empty.
func RecordInvalid(recorder events.EventRecorder, pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonInvalidPolicy, "Scheduling", "%s", InvalidNote(invalid))
}

// InvalidNote returns the note of the event for ignored annotations. invalid must not be empty. The
// note lists the errors, and the number of omitted ones if not all errors fit. The scheduler
// records a single event because the recorder aggregates similar events on one object and keeps
// only the first note.
func InvalidNote(invalid []decision.InvalidAnnotation) string {
	// The API server rejects notes of more than 1,024 bytes (validation of events.k8s.io/v1). A
	// single error is always shorter.
	const maxNote, more = 1024, "; and %d more"
	note := invalid[0].String()
	for i, annotation := range invalid[1:] {
		longer := note + "; " + annotation.String()
		if left := len(invalid) - i - 1; len(longer) > maxNote-len(more) {
			return note + fmt.Sprintf(more, left)
		}
		note = longer
	}
	return note
}
