package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Exception is the event for a pod that the scheduler placed as a deliberate exception to its
// policy.
type Exception struct{ Type, Reason, Note string }

var exceptions = map[decision.Outcome]Exception{
	decision.ByExemption:      {v1.EventTypeNormal, spot.ReasonExempt, "placed on spot despite its floor: the pod's own node selector or affinity admits only spot"},
	decision.ByFallback:       {v1.EventTypeWarning, spot.ReasonFellBack, "placed on spot over its budget or cap: no other node had room within fallbackAfter"},
	decision.ByRolloutRelief:  {v1.EventTypeWarning, spot.ReasonRolloutRelief, "placed on spot to let the rollout finish: older replicas of its workload occupy the on-demand capacity"},
	decision.ByScheduleAnyway: {v1.EventTypeWarning, spot.ReasonScheduledAnyway, "placed on spot over its budget or cap: whenUnsatisfiable is ScheduleAnyway"},
}

// ExceptionOf returns the event for an outcome. It returns false for an outcome that needs no
// event.
func ExceptionOf(outcome decision.Outcome) (Exception, bool) {
	e, ok := exceptions[outcome]
	return e, ok
}

// InvalidNote returns the note of the event for ignored annotations. invalid must not be empty. The
// note lists the mistakes, and the number of omitted ones if not all mistakes fit. The scheduler
// records a single event because the recorder aggregates similar events on one object and keeps
// only the first note.
func InvalidNote(invalid []decision.InvalidAnnotation) string {
	// The API server rejects notes of more than 1,024 bytes (validation of events.k8s.io/v1). A
	// single mistake is always shorter.
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
