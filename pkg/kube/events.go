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
	// ReasonContradictoryLabels (Warning, on the node): its labels call it both spot and on-demand, or the only capacity labels that it
	// has have unknown values; it counts as spot.
	ReasonContradictoryLabels = "ContradictoryCapacityLabels"
	// ReasonUnknownLabel (Warning, on the node): a capacity label has an unknown value, which is ignored: another capacity label decides.
	ReasonUnknownLabel = "UnknownCapacityLabel"
	// ReasonNoLabel (Normal, on the node): it got no capacity label within labelGrace, and counts as unlabeledNodes says from now on.
	ReasonNoLabel = "NoCapacityLabel"

	// ReasonMoving (Normal, on the workload): pods of it are being moved.
	ReasonMoving = "MovingPods"
	// ReasonReleased (Normal, on the pod): it was taken out of its ReplicaSet, and leaves when its replacement is ready.
	ReasonReleased = "ReleasedToMove"
	// ReasonRestored (Warning, on the pod and its workload): it was given back, because no replacement became ready in time.
	ReasonRestored = "MoveUndone"
	// ReasonEvicted (Normal, on the pod): it was evicted, to run elsewhere.
	ReasonEvicted = "EvictedToMove"
	// ReasonDeleted (Warning, on the pod and its workload): it was deleted, because its node goes before a budget would have let it leave.
	ReasonDeleted = "DeletedAtDeadline"
	// ReasonLeftover (Normal, on the pod): it was released from a ReplicaSet that is gone or wants no pods any more, and was deleted.
	ReasonLeftover = "LeftoverDeleted"
	// ReasonBlocked (Warning, on the pod): its disruption budgets refuse its eviction.
	ReasonBlocked = "EvictionBlocked"
	// ReasonNowhere (Warning, on the pod): it is to leave, and stays because nothing has room for its replacement.
	ReasonNowhere = "NowhereToMove"
	// ReasonNotReplacedFirst (Warning, on the pod): its node is drained by somebody else, and no replacement can start before it is evicted.
	ReasonNotReplacedFirst = "NotReplacedFirst"
	// ReasonProtected (Normal, on the Deployment): a PodDisruptionBudget of the controller holds its pods until they are replaced.
	ReasonProtected = "Protected"
	// ReasonProtectionRelaxed (Warning, on the Deployment): that budget lets pods be evicted that are not replaced.
	ReasonProtectionRelaxed = "ProtectionRelaxed"
	// ReasonNotProtected (Warning, on the Deployment or StatefulSet): it asks for protection, and cannot have it.
	ReasonNotProtected = "NotProtected"
	// ReasonProtectionWithdrawn (Warning, on the budget): the scheduler deleted it, because no controller runs.
	ReasonProtectionWithdrawn = "ProtectionWithdrawn"
	// ReasonOverdue (Warning, on the pod): it was moved, and still terminates a minute after its grace period.
	ReasonOverdue = "TerminationOverdue"
	// ReasonPodsLost (Warning, on the node): it vanished while pods that had to leave it were still there.
	ReasonPodsLost = "PodsLostWithNode"

	// ReasonInterruption (Warning, on the node): it goes at a deadline; it was tainted, and its
	// pods leave. It is also the reason of the condition DisruptionTarget of pods that are deleted
	// because of it.
	ReasonInterruption = "SpotInterruption"
	// ReasonAdvice (Normal, on the node): it may go; it was tainted, and its pods leave one after the other.
	ReasonAdvice = "InterruptionAdvised"
	// ReasonInterruptionOver (Normal, on the node): the project's taint was taken off it, because nothing announces its end any more, or
	// an advice has lasted for too long to be believed.
	ReasonInterruptionOver = "InterruptionOver"
	// ReasonInvalidDeadline (Warning, on the node): its deadline annotation does not parse, or is older than its signals; what those say counts.
	ReasonInvalidDeadline = "InvalidInterruptionDeadline"

	// ReasonHiddenFromAutoscaler (Warning, on the pod): the policy wants something for it that cannot be written where autoscalers see it.
	ReasonHiddenFromAutoscaler = "HiddenFromAutoscaler"
	// ReasonHiddenCapacity (Warning, on the node): autoscalers take it for another capacity type than the policy does.
	ReasonHiddenCapacity = "CapacityHiddenFromAutoscaler"
	// ReasonReplacedPending (Warning, on the pod): it waited in vain and was deleted, so that its successor gets another affinity.
	ReasonReplacedPending = "ReplacedWhilePending"
	// ReasonNoSuccessor (Warning, on the pod): it waits in vain, and is not deleted because nothing would make it anew.
	ReasonNoSuccessor = "FallbackNeedsController"
	// ReasonGateExpired (Warning, on the pod): the scheduler removed its capacity gate, because the controller had not done so in time.
	ReasonGateExpired = "CapacityGateExpired"
)
