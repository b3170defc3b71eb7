package spot

// The reasons of the events that this project records. docs/events.md lists them with the action to
// take for each.
const (
	// ReasonInvalidPolicy (Warning, on the pod): an annotation does not parse. The scheduler
	// ignores it and uses the next level of policy.
	ReasonInvalidPolicy = "InvalidSpotPolicy"
	// ReasonFellBack (Warning, on the pod): the pod waited for fallbackAfter. The scheduler placed
	// it on spot over its budget or cap.
	ReasonFellBack = "FellBackToSpot"
	// ReasonRolloutRelief (Warning, on the pod): the scheduler placed a replica of the floor on
	// spot. Older replicas of the same workload occupy the on-demand capacity that it waited for.
	ReasonRolloutRelief = "RolloutRelief"
	// ReasonScheduledAnyway (Warning, on the pod): the scheduler placed the pod on spot over its
	// budget or cap, as ScheduleAnyway permits.
	ReasonScheduledAnyway = "SpotBudgetExceeded"
	// ReasonExempt (Normal, on the pod): the pod runs on spot because its own selector or affinity
	// admits only spot.
	ReasonExempt = "ExemptFromFloor"
	// ReasonContradictoryLabels (Warning, on the node): the capacity labels contradict each other,
	// or all their values are unknown. The node counts as spot.
	ReasonContradictoryLabels = "ContradictoryCapacityLabels"
	// ReasonUnknownLabel (Warning, on the node): a capacity label has an unknown value, which is
	// ignored. Another capacity label decides.
	ReasonUnknownLabel = "UnknownCapacityLabel"
	// ReasonNoLabel (Normal, on the node): the node received no capacity label within labelGrace.
	// From now on, unlabeledNodes determines its capacity type.
	ReasonNoLabel = "NoCapacityLabel"

	// ReasonMoving (Normal, on the workload): the controller is moving pods of the workload.
	ReasonMoving = "MovingPods"
	// ReasonReleased (Normal, on the pod): the controller released the pod from its ReplicaSet. It
	// evicts the pod when the replacement is ready.
	ReasonReleased = "ReleasedToMove"
	// ReasonRestored (Warning, on the pod and its workload): the controller returned the released
	// pod to its ReplicaSet, because no replacement became ready in time.
	ReasonRestored = "RestoredToReplicaSet"
	// ReasonEvicted (Normal, on the pod): the controller evicted the pod, so that its replacement
	// runs on another node.
	ReasonEvicted = "EvictedToMove"
	// ReasonDeleted (Warning, on the pod and its workload): the controller deleted the pod, because
	// its PodDisruptionBudget would not have permitted an eviction before the deadline of the node.
	ReasonDeleted = "DeletedAtDeadline"
	// ReasonOrphan (Normal, on the pod): the controller deleted a released pod, because its
	// ReplicaSet no longer exists or no longer wants replicas.
	ReasonOrphan = "DeletedOrphan"
	// ReasonBlocked (Warning, on the pod, and on its workload if a webhook or a policy refuses):
	// the eviction of the pod is refused.
	ReasonBlocked = "EvictionBlocked"
	// ReasonRefused (Warning, on the object and, for a pod, on its workload): a webhook or a policy
	// refuses a change that the controller must make, or the scheduler for an expired gate.
	ReasonRefused = "ChangeRefused"
	// ReasonShortNotice (Warning, on the pod and its workload): the pod's node is reclaimed before
	// its replacement can be available.
	ReasonShortNotice = "NoticeTooShort"
	// ReasonNoRoom (Warning, on the pod): the pod stays on a node that it should leave, because no
	// node has room for its replacement.
	ReasonNoRoom = "NoRoomForReplacement"
	// ReasonUseless (Warning, on the pod): the pod stays on a node that it should leave until its
	// last moment. Its replacement returned to the same node, or the pods of its workload were
	// moved off the node too often. It is recorded once for each workload and node.
	ReasonUseless = "MoveUseless"
	// ReasonNotReplacedFirst (Warning, on the pod): another actor drains the node, and no
	// replacement can start before the pod is evicted.
	ReasonNotReplacedFirst = "NotReplacedFirst"
	// ReasonProtected (Normal, on the Deployment): a PodDisruptionBudget of the controller blocks
	// the eviction of pods until they are replaced.
	ReasonProtected = "Protected"
	// ReasonProtectionRelaxed (Warning, on the Deployment): that PodDisruptionBudget permits the
	// eviction of pods that are not replaced.
	ReasonProtectionRelaxed = "ProtectionRelaxed"
	// ReasonNotProtected (Warning, on the Deployment or StatefulSet): the workload requests
	// protection, but cannot have it.
	ReasonNotProtected = "NotProtected"
	// ReasonProtectionWithdrawn (Warning, on the PodDisruptionBudget): the scheduler deleted it,
	// because no controller is running.
	ReasonProtectionWithdrawn = "ProtectionWithdrawn"
	// ReasonOverdue (Warning, on the pod): the pod was moved, and is still terminating one minute
	// after its grace period.
	ReasonOverdue = "TerminationOverdue"
	// ReasonPodsLost (Warning, on the node): the node disappeared before all pods were moved off
	// it.
	ReasonPodsLost = "PodsLostWithNode"

	// ReasonInterruption (Warning, on the node): the node is reclaimed at a deadline. The
	// controller tainted it and moves its pods. Pods that the controller deletes because of it get
	// a DisruptionTarget condition with the same reason.
	ReasonInterruption = "SpotInterruption"
	// ReasonAdvisory (Normal, on the node): the node may be reclaimed. The controller tainted it
	// and moves its pods one at a time.
	ReasonAdvisory = "InterruptionAdvisory"
	// ReasonInterruptionOver (Normal, on the node): the controller removed its taint. The
	// interruption signal was cleared, or an advisory signal expired.
	ReasonInterruptionOver = "InterruptionOver"
	// ReasonInvalidDeadline (Warning, on the node): the deadline annotation does not parse, or is
	// older than the signals. The deadline of the signals applies.
	ReasonInvalidDeadline = "InvalidInterruptionDeadline"
	// ReasonUnexpectedNotice (Warning, on the node): the node has a signal that only spot nodes
	// get, but no label marks it as spot.
	ReasonUnexpectedNotice = "UnexpectedSpotNotice"
	// ReasonAnnotationNotRead (Warning, on the owner of pods): an annotation with a setting has no
	// effect there.
	ReasonAnnotationNotRead = "AnnotationNotRead"
	// ReasonTooManyTerms (Warning, on the PodDisruptionBudget): its selector is not evaluated.
	ReasonTooManyTerms = "TooManyTerms"

	// ReasonHiddenFromAutoscaler (Warning, on the pod): the policy requires something that cannot
	// be expressed in fields that autoscalers read, or on-demand although no on-demand node could
	// run the pod.
	ReasonHiddenFromAutoscaler = "HiddenFromAutoscaler"
	// ReasonHiddenCapacity (Warning, on the node): autoscalers and the policy disagree on the
	// capacity type of the node.
	ReasonHiddenCapacity = "CapacityHiddenFromAutoscaler"
	// ReasonReplacedPending (Warning, on the pod): the controller deleted a pending pod that could
	// not be scheduled. Its successor gets another node affinity.
	ReasonReplacedPending = "ReplacedWhilePending"
	// ReasonNoSuccessor (Warning, on the pod): the pod cannot be scheduled. The controller does not
	// delete it, because no other controller would create it again.
	ReasonNoSuccessor = "FallbackNeedsController"
	// ReasonGateExpired (Warning, on the pod): the scheduler removed the capacity gate, because the
	// controller did not remove it in time.
	ReasonGateExpired = "CapacityGateExpired"
)
