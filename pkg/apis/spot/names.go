// Package spot contains the names that users, tenants and other programs read and write on objects:
// labels, annotations, taints, gates and the reasons of events. They are part of the API. The
// package imports nothing.
package spot

// Domain is the prefix of all names of this project, except CapacityLabel.
const Domain = "spot-aware-scheduler.io/"

// CapacityLabel is the project's own label of nodes. The values "spot" and "on-demand" override all
// other labels. Any other value is unknown: see decision.Policy.UnknownLabels.
const CapacityLabel = "node.kubernetes.io/capacity"

// The policy of a workload, as annotations of its owner or of its pods. docs/tuning.md describes
// the values.
const (
	MinOnDemandAnnotation       = "spot-aware-scheduler.io/min-on-demand"
	MaxPerPoolAnnotation        = "spot-aware-scheduler.io/max-per-pool"
	WhenUnsatisfiableAnnotation = "spot-aware-scheduler.io/when-unsatisfiable"
	FallbackAfterAnnotation     = "spot-aware-scheduler.io/fallback-after"
	RolloutReliefAnnotation     = "spot-aware-scheduler.io/rollout-relief"
	OverflowAnnotation          = "spot-aware-scheduler.io/overflow"
	ProtectAnnotation           = "spot-aware-scheduler.io/protect"
	DisruptionLimitAnnotation   = "spot-aware-scheduler.io/disruption-limit"
	OnDisruptionLimitAnnotation = "spot-aware-scheduler.io/on-disruption-limit"
)

// OptInLabel opts in pods: all new pods of a namespace with this label, or the pods that have it.
// The label of a pod has priority.
const (
	OptInLabel = "spot-aware-scheduler.io/opt-in"
	// KeepScheduler opts in a pod that another scheduler places.
	KeepScheduler = "keep-scheduler"
	// OptOut opts out a pod in a namespace that opts in.
	OptOut = "false"
)

// The disruptions of a Job whose policy has a disruption limit, as annotations of the Job. The
// controller counts up to the limit. Anyone who may write the Job can change the count. It affects
// only the pods of that Job.
const (
	// DisruptionsAnnotation is the number of disruptions so far.
	DisruptionsAnnotation = "spot-aware-scheduler.io/disruptions"
	// DisruptedPodsAnnotation contains the UIDs of the counted pods, separated by commas, so that
	// each pod counts once.
	DisruptedPodsAnnotation = "spot-aware-scheduler.io/disrupted-pods"
)

const (
	// InterruptionTaint is the project's own signal. Users and webhooks may set it; its value is a
	// short reason.
	InterruptionTaint = "spot-aware-scheduler.io/interruption"
	// InterruptionDeadlineAnnotation is the time (RFC 3339) at which a node with a reclaim signal
	// is reclaimed. It applies to every reclaim signal.
	InterruptionDeadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"
	// InterruptionStateAnnotation is on nodes that the controller has marked. It contains, as JSON,
	// the marks that the controller wrote, so that the controller never removes marks of other
	// actors. It also contains facts that a Node does not record by itself. A taint or deadline
	// that differs from the annotation belongs to another actor: the controller respects it and
	// does not remove it. The same applies to all marks if the annotation is missing or does not
	// parse, except to a taint whose value shows another signal of the node.
	InterruptionStateAnnotation = "spot-aware-scheduler.io/interruption-state"
)

const (
	// ReleasedAnnotation marks a released pod: the controller has removed it from its ReplicaSet,
	// and evicts it when its replacement is ready.
	ReleasedAnnotation = "spot-aware-scheduler.io/released"
	// ReleasedHash is the value of the label pod-template-hash on a released pod. No ReplicaSet
	// selects it.
	ReleasedHash = "released"
	// SurgeAnnotation with the value "false" on a Deployment, or on a ReplicaSet without a
	// Deployment, forbids moves by surge. Two of its pods then never run where one was requested.
	SurgeAnnotation = "spot-aware-scheduler.io/surge"
	// DeletionCostAnnotation records the deletion cost that the controller wrote on a pod. A
	// deletion cost that differs from it belongs to the user.
	DeletionCostAnnotation = "spot-aware-scheduler.io/deletion-cost"
	// ProtectLabel has the value "true" on the PodDisruptionBudgets that the controller creates for
	// workloads that request protection. The controller changes and deletes budgets with this
	// label, or with the name and controller of such. The scheduler, or the controller with the
	// flag --failsafe, deletes them while no controller is running.
	ProtectLabel = "spot-aware-scheduler.io/protect"
)

const (
	// CapacityGate is the scheduling gate that the admission policy of the autoscaler overlay adds
	// to new pods. The controller removes it after it has written the pod's capacity type as node
	// affinity. If the controller does not remove it in time, the scheduler does.
	CapacityGate = "spot-aware-scheduler.io/capacity"
	// AssignedAnnotation records on a pod the decision of the controller when it removed
	// CapacityGate: an assigned capacity, a colon and the reason. Anyone who may write the pod can
	// write it. It therefore affects only preferences of that pod.
	AssignedAnnotation = "spot-aware-scheduler.io/assigned"
	// GateExpired is its value if a failsafe removed CapacityGate instead of the controller.
	GateExpired = "none: the gate expired"
	// NotExcluded is a part of its value if affinity cannot exclude all spot nodes.
	NotExcluded = "no label excludes the spot node "
	// WaitingSinceAnnotation is the time (RFC 3339) from which a pod that had scheduling gates
	// waits for a node. The program that removes CapacityGate writes it with the last gate,
	// otherwise the scheduler when it finds the pod unschedulable. Anyone who may write the pod can
	// write it: the time with gates may then count as waiting time, but no time before the pod was
	// created. On a pod with CapacityGate it is until when the controller keeps the gate, because
	// on-demand has no room and no controller would recreate the pod for a fallback.
	WaitingSinceAnnotation = "spot-aware-scheduler.io/waiting-since"
	// MemoryAnnotation contains, as JSON on the Lease of a program, what its leaders pass on to
	// later leaders. Who may write the Lease may also make another replica lead.
	MemoryAnnotation = "spot-aware-scheduler.io/memory"
	// GrantedAnnotation is GrantedFallback or GrantedRelief on a pod that may use any spot node,
	// regardless of budget and cap, or GrantedExemption. The UID of the pod follows after a space:
	// a copy of the pod has no grant. An admission policy lets only the controller write it later.
	GrantedAnnotation = "spot-aware-scheduler.io/granted"
	// GrantedFallback means that a predecessor of the pod waited for fallbackAfter.
	GrantedFallback = "fallback"
	// GrantedRelief means that a predecessor of the pod waited for rolloutRelief while an older
	// revision occupied on-demand capacity.
	GrantedRelief = "rollout-relief"
	// GrantedExemption means that only spot nodes can run the pod, as if its own node selector
	// admitted only spot.
	GrantedExemption = "exemption"
)

// The current price of a node and its on-demand price, in US dollars per hour, as annotations. They
// override price lists.
const (
	PriceAnnotation         = "spot-aware-scheduler.io/usd-per-hour"
	OnDemandPriceAnnotation = "spot-aware-scheduler.io/on-demand-usd-per-hour"
)

// Marks are the annotations with which the controller marks one pod. They mean nothing on a copy of
// the pod, such as a restored one.
var Marks = []string{ReleasedAnnotation, AssignedAnnotation, WaitingSinceAnnotation, GrantedAnnotation}

// Annotations are all annotations of this project. Any other one with its prefix has no effect.
var Annotations = []string{
	MinOnDemandAnnotation, MaxPerPoolAnnotation, WhenUnsatisfiableAnnotation, FallbackAfterAnnotation,
	RolloutReliefAnnotation, OverflowAnnotation, ProtectAnnotation, DisruptionLimitAnnotation,
	OnDisruptionLimitAnnotation, DisruptionsAnnotation, DisruptedPodsAnnotation,
	InterruptionDeadlineAnnotation, InterruptionStateAnnotation, ReleasedAnnotation, SurgeAnnotation,
	DeletionCostAnnotation, AssignedAnnotation, WaitingSinceAnnotation, MemoryAnnotation,
	GrantedAnnotation, PriceAnnotation, OnDemandPriceAnnotation,
}
