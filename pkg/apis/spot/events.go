// This file has the reasons of the events that this project records. hack/generate.sh writes the
// tables of docs/events.md from the comments: type, object, meaning and remedy.

package spot

// Placement: events about where pods run, and about the capacity types of nodes.
const (
	// ReasonInvalidPolicy (Warning, on the pod): the value of an annotation is invalid and ignored;
	// the next level applies (pod, rule, default).
	//
	// Remedy: correct the annotation that the message names.
	ReasonInvalidPolicy = "InvalidSpotPolicy"
	// ReasonFellBack (Warning, on the pod): the pod, or a pod that it replaces, waited for
	// on-demand for `fallbackAfter`. Now it runs on spot, beyond spot budget or cap.
	//
	// Remedy: add on-demand capacity; a floor is not met until a replica returns.
	ReasonFellBack = "FellBackToSpot"
	// ReasonRolloutRelief (Warning, on the pod): the pod belongs to the floor of a new revision,
	// and older replicas used the on-demand room for `rolloutRelief`.
	//
	// Remedy: as for `FellBackToSpot`; room for one more replica on on-demand avoids it.
	ReasonRolloutRelief = "RolloutRelief"
	// ReasonScheduledAnyway (Warning, on the pod): `ScheduleAnyway` allowed the pod on spot, beyond
	// spot budget or cap.
	//
	// Remedy: nothing, or add on-demand capacity.
	ReasonScheduledAnyway = "SpotBudgetExceeded"
	// ReasonExempt (Normal, on the pod): the pod's own selector, affinity, volumes or extended
	// resources admit only spot, so it runs there in spite of its floor.
	//
	// Remedy: remove the selector if this is not intended, or add on-demand nodes with the
	// resource.
	ReasonExempt = "ExemptFromFloor"
	// ReasonContradictoryLabels (Warning, on the node): the labels of the node contradict each
	// other, or have only unknown values. It counts as spot.
	//
	// Remedy: set `node.kubernetes.io/capacity` on the node, or correct the labels.
	ReasonContradictoryLabels = "ContradictoryCapacityLabels"
	// ReasonUnknownLabel (Warning, on the node): a capacity label has an unknown value; another
	// label decides.
	//
	// Remedy: require `In [on-demand]` instead of `NotIn [spot]`, because Karpenter invents values;
	// or correct the label.
	ReasonUnknownLabel = "UnknownCapacityLabel"
	// ReasonNoLabel (Normal, on the node): no capacity label arrived within `labelGrace`: from now
	// on `unlabeledNodes` decides.
	//
	// Remedy: nothing, if `unlabeledNodes` is right; otherwise label the nodes, or raise
	// `labelGrace`.
	ReasonNoLabel = "NoCapacityLabel"
)

// Moves: events about moves of pods, PodDisruptionBudgets and settings. The controller records
// them, except where a comment names the scheduler.
const (
	// ReasonMoving (Normal, on the workload): the controller moves pods of the workload, for the
	// reason in brackets.
	ReasonMoving = "MovingPods"
	// ReasonReleased (Normal, on the pod): the pod was taken out of its ReplicaSet, which starts a
	// replacement; it serves meanwhile. `waits for a new node`: no node has room.
	//
	// Remedy: nothing; without an autoscaler add capacity.
	ReasonReleased = "ReleasedToMove"
	// ReasonEvicted (Normal, on the pod): the pod was evicted: its replacement is ready, or the
	// message gives the reason why there was no surge.
	ReasonEvicted = "EvictedToMove"
	// ReasonRestored (Warning, on the pod and its workload): no replacement was ready in time, and
	// the pod was restored to its ReplicaSet. By a failsafe: spot-controller has not renewed its
	// Lease for 5 min.
	//
	// Remedy: examine the replacement (quota, image, readiness probe), or check whether
	// spot-controller runs.
	ReasonRestored = "RestoredToReplicaSet"
	// ReasonInvalidSwitches (Warning, on the ConfigMap): the ConfigMap `spot-controller-switches`
	// has an invalid value. An invalid pause pauses everything, and an invalid breaker is open.
	//
	// Remedy: `kubectl spot pause`, `resume` and `breaker` replace the value.
	ReasonInvalidSwitches = "InvalidSwitches"
	// ReasonBlocked (Warning, on the pod and, if a webhook or a policy refuses, on its workload): a
	// PodDisruptionBudget, a webhook or a policy refuses the eviction; the message names it. The
	// controller retries.
	//
	// Remedy: allow one disruption; let only one PodDisruptionBudget match a pod, whose pods
	// Kubernetes can count; exempt the controller's ServiceAccount.
	ReasonBlocked = "EvictionBlocked"
	// ReasonRefused (Warning, on the object and, for a pod, on its workload): a webhook or a policy
	// refuses a change by the controller, or the scheduler's removal of an overdue gate. The
	// program retries.
	//
	// Remedy: exempt the controller's ServiceAccount, for a gate also the scheduler's; or repair
	// the webhook. If a webhook changes the image of a gated pod in the same request, delete the
	// pod, as SECURITY.md explains.
	ReasonRefused = "ChangeRefused"
	// ReasonShortNotice (Warning, on the pod and its workload): `minReadySeconds` is longer than
	// what is left until the node is reclaimed, so the pod is deleted before its replacement is
	// available.
	//
	// Remedy: reduce `minReadySeconds`.
	ReasonShortNotice = "NoticeTooShort"
	// ReasonNoRoom (Warning, on the pod): the pod should move, but no node has room for a
	// replacement: it stays, at an interruption until the time in the message.
	//
	// Remedy: add capacity.
	ReasonNoRoom = "NoRoomForReplacement"
	// ReasonUseless (Warning, on the pod): a move would not help: a replacement returned to the
	// same node, too many moves have started off this node, or the last move improved nothing. The
	// pod stays until its last moment, or until the time in the message. The event is recorded at
	// most once an hour for each workload and node.
	//
	// Remedy: remove `nodeName` or the toleration from the pod template, find out who sets and
	// clears the signal, or ask the scheduler why the replacement was placed elsewhere.
	ReasonUseless = "MoveUseless"
	// ReasonUnconfirmed (Warning, on the pod): the breaker is open, and no replacement can start
	// before the eviction of the pod. It stays until something confirms that its node is being
	// reclaimed, or until its turn if a replacement has room.
	//
	// Remedy: as for `BreakerOpened`.
	ReasonUnconfirmed = "ReclaimNotConfirmed"
	// ReasonLimitReached (Warning, on the workload): a limit or a schedule of `limits` in the
	// controller's configuration refuses moves of its pods for now. The message has the limit, and
	// when the next move may start. The event is recorded at most once an hour for each workload
	// and reason of moves.
	//
	// Remedy: find out what causes so many moves. Then wait, or raise the limit.
	ReasonLimitReached = "LimitReached"
	// ReasonNotReplacedFirst (Warning, on the pod): another tool drains the node, and no
	// replacement can start before the pod is evicted.
	//
	// Remedy: correct what the message names, such as a Service that selects by
	// `pod-template-hash`.
	ReasonNotReplacedFirst = "NotReplacedFirst"
	// ReasonProtected (Normal, on the Deployment): the PodDisruptionBudget in the message blocks
	// evictions until a replacement is ready.
	ReasonProtected = "Protected"
	// ReasonProtectionRelaxed (Warning, on the Deployment): the PodDisruptionBudget of `Protected`
	// now allows evictions before a replacement is ready.
	//
	// Remedy: correct what the message names, such as missing room.
	ReasonProtectionRelaxed = "ProtectionRelaxed"
	// ReasonNotProtected (Warning, on the Deployment or StatefulSet): the workload asks for
	// protection, but the controller creates no PodDisruptionBudget for it.
	//
	// Remedy: correct the reason in the message; for a StatefulSet create a PodDisruptionBudget
	// yourself.
	ReasonNotProtected = "NotProtected"
	// ReasonProtectionWithdrawn (Warning, on the PodDisruptionBudget): the scheduler or
	// `--failsafe` deleted the PodDisruptionBudget, because spot-controller has not renewed its
	// Lease for 5 min.
	//
	// Remedy: check whether spot-controller runs. It creates the PodDisruptionBudget again.
	ReasonProtectionWithdrawn = "ProtectionWithdrawn"
	// ReasonTooManyTerms (Warning, on the PodDisruptionBudget): its selector has more than 200
	// terms, so the controller ignores it. The API server still obeys it.
	//
	// Remedy: write fewer terms.
	ReasonTooManyTerms = "TooManyTerms"
	// ReasonDeleted (Warning, on the pod and its workload): the node is reclaimed, and only the
	// grace period of the pod was left, or the Node was deleted. The message has the
	// PodDisruptionBudget that this breaks, and the state of the replacement. The pod has the
	// condition `DisruptionTarget` with the reason `SpotInterruption`; on a deleted Node, only pods
	// of Jobs do.
	//
	// Remedy: shorten the grace period, add room, or allow a disruption.
	ReasonDeleted = "DeletedAtDeadline"
	// ReasonOrphan (Normal, on the pod): a released pod that no ReplicaSet or Deployment wants any
	// more was deleted. By a failsafe, as a Warning: no controller runs, and the Deployment has
	// all its replicas.
	//
	// Remedy: nothing; for a Warning check whether spot-controller runs.
	ReasonOrphan = "DeletedOrphan"
	// ReasonOverdue (Warning, on the pod): the pod was moved, and still terminates a minute after
	// its grace period. It no longer counts towards `rebalance.maxMoves`.
	//
	// Remedy: find a finalizer that no controller removes, or a node that no longer responds.
	ReasonOverdue = "TerminationOverdue"
	// ReasonAnnotationNotRead (Warning, on the owner of pods): no program reads settings from
	// objects of this kind, such as a CloneSet. Only for kinds that the ClusterRole
	// `spot-controller` may get.
	//
	// Remedy: set the annotation in the pod template.
	ReasonAnnotationNotRead = "AnnotationNotRead"
	// ReasonPodsLost (Warning, on the node): the node vanished with pods on it; the message counts
	// them, and has their workloads and the states of the replacements.
	//
	// Remedy: as for `DeletedAtDeadline`; compare the notice with the notice that the provider
	// promises.
	ReasonPodsLost = "PodsLostWithNode"
)

// Autoscalers: events about what autoscalers see, if gating.enabled is set.
const (
	// ReasonHiddenFromAutoscaler (Warning, on the pod): node affinity does not express a part of
	// the policy: `maxPerPool`, a floor for a pod that admits only spot, a topology spread
	// constraint, a floor that no on-demand node could run, or a spot node without a usable label.
	//
	// Remedy: no `maxPerPool` with autoscalers; remove the pod's own affinity; `nodeAffinityPolicy:
	// Ignore` in the constraint; a fitting on-demand node, or a floor of 0; label the node.
	ReasonHiddenFromAutoscaler = "HiddenFromAutoscaler"
	// ReasonOptInIgnored (Warning, on the pod): the label `spot-aware-scheduler.io/opt-in` of the
	// pod has no effect, or the policy does not apply any more to a pod with the gate.
	//
	// Remedy: the value `keep-scheduler` or `false`; not both `keep-scheduler` and the
	// schedulerName of this project.
	ReasonOptInIgnored = "OptInIgnored"
	// ReasonHiddenCapacity (Warning, on the node): no label of `gating.labels` on the node shows
	// its capacity type to autoscalers.
	//
	// Remedy: add the autoscaler's own capacity label to the node, or the node's label to
	// `gating.labels`.
	ReasonHiddenCapacity = "CapacityHiddenFromAutoscaler"
	// ReasonReplacedPending (Warning, on the pod): the pod waited too long for on-demand, with
	// affinity that cannot be changed, so the controller deleted it before it ever ran.
	//
	// Remedy: read the autoscaler's events on the pod.
	ReasonReplacedPending = "ReplacedWhilePending"
	// ReasonGateExpired (Warning, on the pod): the controller did not remove the gate within
	// `gateTimeout`, so autoscalers and other schedulers do not see the floor.
	//
	// Remedy: check whether spot-controller runs, with `gating.enabled: true`.
	ReasonGateExpired = "CapacityGateExpired"
	// ReasonNoSuccessor (Warning, on the pod): as for `ReplacedWhilePending`, but no controller
	// would create the pod again as it is, such as a restored one: it continues to wait.
	//
	// Remedy: as for `ReplacedWhilePending`.
	ReasonNoSuccessor = "FallbackNeedsController"
)

// Interruptions: events about marks on nodes. The controller records them when it has changed the
// marks.
const (
	// ReasonInterruption (Warning, on the node): the node will be reclaimed; the message has the
	// time and the signal. The controller tainted it, and moves its pods.
	ReasonInterruption = "SpotInterruption"
	// ReasonAdvisory (Normal, on the node): the node has an advisory signal. The controller tainted
	// it, and moves its pods one after the other (`interruption.advisory.enabled`).
	ReasonAdvisory = "InterruptionAdvisory"
	// ReasonInterruptionOver (Normal, on the node): the controller removed its taint: the signal
	// was cleared, or an advisory signal expired.
	ReasonInterruptionOver = "InterruptionOver"
	// ReasonBreakerOpened (Warning, on the Lease of the controller): more spot nodes have a reclaim
	// signal than `interruption.breaker` allows, or most nodes outlive a signal. Until something
	// confirms the end of a node, no pod is deleted there, and without a ready replacement only one
	// pod of a workload is evicted at a time. A new leader repeats the event.
	//
	// Remedy: find out whether the nodes are being reclaimed. If not, remove the signals.
	ReasonBreakerOpened = "BreakerOpened"
	// ReasonBreakerClosed (Normal, on the Lease of the controller): every node of `BreakerOpened`
	// is confirmed, gone, or without signals.
	ReasonBreakerClosed = "BreakerClosed"
	// ReasonInvalidDeadline (Warning, on the node): the deadline annotation does not parse, or is
	// older than the signal. The signals define the deadline.
	//
	// Remedy: correct the annotation: RFC 3339; remove it together with its signal.
	ReasonInvalidDeadline = "InvalidInterruptionDeadline"
	// ReasonUnexpectedNotice (Warning, on the node): the node has a signal that only spot nodes
	// get, but no label marks it as spot. On a node that is labelled on-demand the signal is only
	// advisory.
	//
	// Remedy: set `node.kubernetes.io/capacity: spot` on the node, or let its provisioner set its
	// label.
	ReasonUnexpectedNotice = "UnexpectedSpotNotice"
)
