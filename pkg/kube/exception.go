package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Exception is the event that tells of a pod that was placed as a deliberate exception.
type Exception struct{ Type, Reason, Note string }

var exceptions = map[decision.Outcome]Exception{
	decision.ByExemption:      {v1.EventTypeNormal, ReasonExempt, "the pod's own node selector or affinity admits only spot: it is there whatever its floor"},
	decision.ByFallback:       {v1.EventTypeWarning, ReasonFellBack, "no other node had room within fallbackAfter: on spot over its budget or cap"},
	decision.ByRelief:         {v1.EventTypeWarning, ReasonRolloutRelief, "older replicas of its workload hold on-demand room: on spot so that the rollout can finish"},
	decision.ByScheduleAnyway: {v1.EventTypeWarning, ReasonScheduledAnyway, "ScheduleAnyway: on spot over its budget or cap"},
}

// ExceptionOf returns the event for an outcome that a person should hear of; false for every other one.
func ExceptionOf(outcome decision.Outcome) (Exception, bool) {
	e, ok := exceptions[outcome]
	return e, ok
}

// InvalidNote is the note of the event that tells of annotations that were ignored, of which there is at least one: it names the mistakes,
// and how many more there are where an event has no room for all of them. It is one event, because of several like events on one object the
// recorder keeps the first note only.
func InvalidNote(invalid []decision.InvalidAnnotation) string {
	// The API server refuses notes of more than 1,024 bytes (validation of events.k8s.io/v1); one mistake is shorter.
	const most, more = 1024, "; and %d more"
	note := invalid[0].String()
	for i, annotation := range invalid[1:] {
		longer := note + "; " + annotation.String()
		if left := len(invalid) - i - 1; len(longer) > most-len(more) {
			return note + fmt.Sprintf(more, left)
		}
		note = longer
	}
	return note
}
