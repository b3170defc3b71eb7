package kube

// The reasons of the events that this project records. docs/events.md lists them with what to do about each.
const (
	// ReasonInvalidPolicy (Warning, on the pod): an annotation does not parse and is ignored; the next level applies.
	ReasonInvalidPolicy = "InvalidSpotPolicy"
	// ReasonFellBack (Warning, on the pod): it waited for fallbackAfter and was placed on spot over its budget or cap.
	ReasonFellBack = "FellBackToSpot"
	// ReasonRolloutRelief (Warning, on the pod): it belongs to the floor and was placed on spot, because older replicas of its own
	// workload hold the on-demand room that it waited for.
	ReasonRolloutRelief = "RolloutTookSpot"
	// ReasonScheduledAnyway (Warning, on the pod): ScheduleAnyway let it go to spot over its budget or cap.
	ReasonScheduledAnyway = "SpotBudgetExceeded"
	// ReasonExempt (Normal, on the pod): it is on spot because its own selector or affinity admits nothing else.
	ReasonExempt = "SpotByOwnAffinity"
	// ReasonContradictoryLabels (Warning, on the node): its labels call it both spot and on-demand, or the project's own has a value
	// that there is not; it counts as spot.
	ReasonContradictoryLabels = "ContradictoryCapacityLabels"
)
