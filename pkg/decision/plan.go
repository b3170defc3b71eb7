package decision

import (
	"fmt"
	"time"
)

// MaxOwnerDelay is the maximum time that a pod waits for an update of a workload that it has
// outgrown. After this time the scheduler decides with the state that it knows. Watches of
// different resources differ by milliseconds, on a busy machine by a second or two.
const MaxOwnerDelay = 5 * time.Second

// AdoptionDelay is the age up to which a pod without a controller waits for its adoption, if its
// labels name a controller. A backup restores pods before their owners.
const AdoptionDelay = 20 * time.Second

// Batch distinguishes Jobs from other workloads, and Jobs by whether a lost pod costs only time.
type Batch int8

const (
	// NotBatch means that the workload is not a Job.
	NotBatch Batch = iota
	// Retriable means that the Job replaces a lost pod.
	Retriable
	// NotRetriable means that a lost pod fails the Job (backoffLimit 0, and no podFailurePolicy
	// that ignores disruptions).
	NotRetriable
	// MaybeRetriable means that a lost pod fails the Job, and that the Job's controller may start
	// it again. A JobSet does so if its own object, which is not read, has a failurePolicy.
	MaybeRetriable
)

// Workload is the owner of a pod, the object that has the replica count.
type Workload struct {
	// Kind is the kind of the object with the replica count ("Deployment", "StatefulSet", "Job",
	// …). It is "Pod" for a pod without a controller.
	Kind string
	// Revision is the display name of the group in which the pod's siblings are counted. For a
	// Deployment it is the pod's ReplicaSet.
	Revision string
	// Annotations of the object with the replica count.
	Annotations map[string]string
	// Desired is the replica count.
	Desired int
	// Ordinal is the pod's index in its StatefulSet, relative to the first ordinal of the set. It
	// is set only if Ordered.
	Ordinal int
	// Ordered means that the first ordinals form the floor, and replicas are not counted.
	Ordered bool
	// BlocksLater means that the StatefulSet controller creates no pod of a later ordinal before
	// this one is ready (OrderedReady).
	BlocksLater bool
	Batch       Batch
	// Groups is the number of groups of the workload that the pods belong to together, if the group
	// is the replica, as in a LeaderWorkerSet; else 0. Group is the index of their group. The floor
	// counts groups, and of its groups it contains all pods.
	Group, Groups int
	// IgnoresDisruptions means that the loss of a pod by a disruption counts as no failure of the
	// Job.
	IgnoresDisruptions bool
	// OrphanOf is the label of a pod without a controller that names one; "" for none.
	OrphanOf string
}

// OwnerDelay is how long a pod of the workload waits if OutdatedOwner returns a reason: from the
// creation of an orphan, otherwise from when the pod was first found unschedulable.
func (w *Workload) OwnerDelay() time.Duration {
	if w.OrphanOf != "" {
		return AdoptionDelay
	}
	return MaxOwnerDelay
}

// Pod is the pod to place.
type Pod struct {
	Namespace     string
	Labels        map[string]string
	Annotations   map[string]string
	PriorityClass string
	Priority      int32
	QOSClass      string
	// OnlySpot means that the pod's own constraints admit no on-demand node (see
	// workload.NodeEvidence).
	OnlySpot bool
	// OnlyOnDemand means that likewise, the pod's own constraints admit no spot node.
	OnlyOnDemand bool
	// Assigned is the capacity type that was assigned to the pod before it was scheduled. Anyone
	// who may write the pod can set it, so it only restricts the pod: no plan admits the pod to
	// more nodes or lets it preempt more pods because of it.
	Assigned AssignedCapacity
	// SpreadByAffinity means that the pod has a topology spread constraint with whenUnsatisfiable
	// DoNotSchedule that counts only what the pod's node affinity admits. So no assignment makes
	// the pod require a capacity type.
	SpreadByAffinity bool
	// SpreadToOnDemand means that a topology spread constraint of the pod with whenUnsatisfiable
	// DoNotSchedule has a domain without spot nodes. overflow Never would block the pods of all
	// other domains, so it does not apply.
	SpreadToOnDemand bool
	// Granted is the Grant that a predecessor of the pod obtained by waiting; NotGranted if none.
	Granted  Grant
	Workload Workload
}

// OutdatedOwner returns why the known state of the pod's workload must be older than the pod, or ""
// if it need not be. An orphan was restored before its owner, or outlives it. No controller creates
// more pods than replicas, or an ordinal beyond the last. Such a pod was created after the workload
// was scaled up, or will be deleted after a scale-down. With a floor computed from too few replicas
// the pod would stay on on-demand for its lifetime, or an ordinal of the floor would run on spot.
// The pods of a Job prove nothing: they end before the Job's status shows it.
func (p *Pod) OutdatedOwner(settings WorkloadSettings, placed PlacedPods) string {
	w := &p.Workload
	switch {
	case w.OrphanOf != "":
		return fmt.Sprintf("owner not known yet: label %s of %s names one (waits until the owner adopts it, until it is %s old)",
			w.OrphanOf, w.Revision, AdoptionDelay)
	case w.Batch != NotBatch || settings.Exempts(p):
	case w.Ordered && w.Ordinal >= w.Desired:
		return fmt.Sprintf("owner not up to date yet: %s has no ordinal %d with %d replicas (waits for an update of its %s, at most %s)",
			w.Revision, w.Ordinal, w.Desired, w.Kind, MaxOwnerDelay)
	case !w.Ordered && placed.OnDemand+placed.Spot >= w.Desired:
		return fmt.Sprintf("owner not up to date yet: all %d replicas of %s are placed (waits for an update of its %s, at most %s)",
			w.Desired, w.Revision, w.Kind, MaxOwnerDelay)
	}
	return ""
}

// PlacedPods counts the pods of one revision that are bound, assumed or nominated to existing
// nodes. Terminal and terminating pods are not counted.
type PlacedPods struct {
	Spot, OnDemand int
}

// Add counts n more pods on nodes of the given capacity type.
func (p *PlacedPods) Add(capacity CapacityType, n int) {
	if capacity == Spot {
		p.Spot += n
	} else {
		p.OnDemand += n
	}
}

// WaitTime describes how long a pod has waited, as far as a Grant may depend on it.
type WaitTime struct {
	// For is the time since the pod was first found unschedulable; 0 if it never was.
	For time.Duration
	// OlderRevisionOnDemand means that an older revision of the pod's workload has pods on
	// on-demand nodes.
	OlderRevisionOnDemand bool
	// Healing means that a released pod of the revision serves on spot until another pod of the
	// revision is ready on on-demand.
	Healing bool
}

// Grant is the reason why a pod may use any spot node, regardless of budget and cap.
type Grant int8

const (
	// NotGranted means that budget and cap apply.
	NotGranted Grant = iota
	// GrantScheduleAnyway means that whenUnsatisfiable of the workload is ScheduleAnyway.
	GrantScheduleAnyway
	// GrantFallback means that the pod, or a pod that it replaces, has waited for FallbackAfter.
	GrantFallback
	// GrantRolloutRelief means that the pod, or a pod that it replaces, has waited for
	// RolloutRelief while an older revision had pods on on-demand.
	GrantRolloutRelief
)

// Outcome returns the reason for a placement on spot with this grant; InBudget without one.
func (g Grant) Outcome() Outcome {
	return [...]Outcome{InBudget, ByScheduleAnyway, ByFallback, ByRolloutRelief}[g]
}

// Plan is the part of a pod's decision that does not depend on the node.
type Plan struct {
	// Floor is the number of replicas of the workload that must survive the loss of all spot nodes.
	// Budget is the number of replicas of the revision that may run on spot.
	Floor, Budget int
	// PoolCap is the maximum number of replicas of the revision in one spot pool; 0 means no cap.
	PoolCap int
	// Exempt means that the budget does not apply to the pod. The pod's own constraints admit only
	// spot, and Settings.Exemptions allows that. The cap still applies.
	Exempt bool
	// Grant, if not NotGranted, lifts budget and cap, because the pod has to run somewhere.
	Grant Grant
	// Prefer is the preferred capacity type: on-demand until the floor is met, then spot. The pods
	// of a Job at its disruption limit, and pods that admit only on-demand, prefer on-demand.
	Prefer CapacityType

	pod           Pod
	placed        PlacedPods
	overflow      OverflowPolicy
	fallbackAfter time.Duration
	// requireOnDemand and preferOnDemand are the effects of the disruptions of a Job that has
	// reached disruptionLimit. At most one is true.
	requireOnDemand, preferOnDemand bool
	disruptionLimit                 int
}

// NewPlan returns the decision for pod under settings. placed counts the pods of its revision, and
// waiting describes how long the pod has waited.
func NewPlan(pod *Pod, settings WorkloadSettings, placed PlacedPods, waiting WaitTime) Plan {
	w := &pod.Workload
	plan := Plan{
		Floor:           settings.Floor(w.Desired),
		Exempt:          settings.Exempts(pod),
		PoolCap:         poolCap(settings.MaxPerPool, w.Desired),
		pod:             *pod,
		placed:          placed,
		overflow:        settings.Overflow,
		fallbackAfter:   settings.FallbackAfter,
		disruptionLimit: settings.DisruptionLimit,
	}
	if pod.SpreadToOnDemand {
		plan.overflow = AllowOverflow
	}
	if pod.SpreadByAffinity && pod.Assigned == AssignedAny {
		plan.pod.Assigned = Unassigned // the siblings of the floor do not require on-demand either
	}
	plan.Budget = w.Desired - plan.Floor
	if settings.DisruptionLimitReached() {
		plan.preferOnDemand = settings.OnDisruptionLimit == PreferOnDemand
		if plan.requireOnDemand = !plan.preferOnDemand; plan.requireOnDemand {
			plan.Budget = 0
		}
	}
	switch {
	case settings.WhenUnsatisfiable == ScheduleAnyway:
		plan.Grant = GrantScheduleAnyway
	case pod.Granted != NotGranted:
		plan.Grant = pod.Granted
	case pod.OnlyOnDemand, waiting.Healing:
		// No spot node is feasible or useful: the pod waits for on-demand, however long.
	case settings.FallbackDue(waiting.For):
		plan.Grant = GrantFallback
	case waiting.OlderRevisionOnDemand && settings.ReliefDue(waiting.For):
		plan.Grant = GrantRolloutRelief
	}
	plan.Prefer = Spot
	if !plan.Exempt && !plan.ExcludedFromOnDemand() &&
		(pod.OnlyOnDemand || !plan.WithinBudget(0) || !plan.BeyondFloor() || plan.preferOnDemand) {
		plan.Prefer = OnDemand
	}
	return plan
}

// WithinBudget reports whether one more replica may run on spot. morePlaced is added to the number
// of replicas of the revision that were on spot when the plan was made. StatefulSets have no such
// count: the pod's ordinal decides.
func (p *Plan) WithinBudget(morePlaced int) bool {
	if p.requireOnDemand {
		return false
	}
	if p.pod.Workload.Ordered {
		// Ordinals below the first ordinal of the set remain after the user changes
		// spec.ordinals.start. They count as part of the floor, if there is a floor.
		return p.Floor == 0 || p.pod.Workload.Ordinal >= p.Floor
	}
	return p.placed.Spot+morePlaced < p.Budget
}

// AdmitsSpot reports whether the policy admits the pod to some spot node.
func (p *Plan) AdmitsSpot() bool { return p.Exempt || p.Grant != NotGranted || p.WithinBudget(0) }

// BeyondFloor reports whether the floor is met without the pod: on-demand runs as many replicas of
// its revision as the floor requires, or the pod's ordinal is outside the floor.
//
// A pod that was assigned beyond the floor is also beyond it while the budget has room. On-demand
// room is then reserved for siblings that were assigned to the floor and may not exist yet. If the
// budget is used up, fewer siblings were assigned to the floor than it now requires. The assignment
// is then ignored.
//
// A pod that disruptions of its Job keep off spot uses on-demand like a replica of the floor.
func (p *Plan) BeyondFloor() bool {
	if p.requireOnDemand || p.pod.Workload.Ordered {
		return p.WithinBudget(0)
	}
	return p.floorMet() || (p.pod.Assigned == AssignedSpot || p.pod.Assigned == AssignedAny) && p.WithinBudget(0)
}

// floorMet reports whether on-demand runs as many replicas of an unordered revision as the floor
// requires.
func (p *Plan) floorMet() bool { return p.placed.OnDemand >= p.Floor }

// MayUnblockSiblings reports whether binding the pod to spot allows siblings that were assigned
// beyond the floor to use on-demand. Overflow Never blocks them while the budget has room, and this
// pod uses the last of it.
func (p *Plan) MayUnblockSiblings() bool {
	return p.overflow == NeverOverflow && !p.pod.Workload.Ordered && !p.floorMet() && p.placed.Spot+1 >= p.Budget
}

// ExcludedFromOnDemand reports whether overflow Never keeps the pod off every on-demand node. It is
// false for a pod that itself admits no spot node, because it could otherwise never run.
func (p *Plan) ExcludedFromOnDemand() bool {
	return p.overflow == NeverOverflow && p.Overflows()
}

// Overflows reports whether the pod would use on-demand room that is reserved for floors: it is
// beyond the floor, and its own constraints admit spot. Such a pod preempts no pod
// on on-demand.
func (p *Plan) Overflows() bool { return !p.pod.OnlyOnDemand && p.BeyondFloor() }

// AdmitsOnDemand reports whether the policy admits the pod to some on-demand node.
func (p *Plan) AdmitsOnDemand() bool { return !p.pod.OnlySpot && !p.ExcludedFromOnDemand() }

// RequiresOnDemand reports whether the policy keeps the pod off every spot node and admits it to
// some on-demand node.
func (p *Plan) RequiresOnDemand() bool { return !p.AdmitsSpot() && p.AdmitsOnDemand() }

// DependsOnSiblings reports whether the plan depends on the nodes on which the pod's siblings
// run: on the number on spot, or with overflow Never on the number on on-demand.
func (p *Plan) DependsOnSiblings() bool {
	if p.overflow == NeverOverflow && !p.pod.OnlyOnDemand && !p.pod.OnlySpot && !p.pod.Workload.Ordered && p.Floor > 0 {
		return true
	}
	return p.Grant == NotGranted && (p.PoolCap > 0 || !p.pod.Workload.Ordered && !p.Exempt && p.Budget > 0)
}

// MayAdmitMore reports whether next may admit the pod to a node that p refuses. Both are plans for
// the same pod; the replica count of its workload changed in between, and its settings did not.
//
// MayAdmitMore ignores two other changes since p was made: a replica of the revision left spot, or
// a replica used up the budget (MayUnblockSiblings). The scheduler retries waiting pods on each of
// these.
func (p *Plan) MayAdmitMore(next *Plan) bool {
	switch {
	case p.Overflows() && !next.Overflows():
		return true // a replica of the floor may use on-demand with overflow Never, and may preempt there
	case p.Grant != NotGranted:
		return false // p refuses no node that next admits
	case next.Grant != NotGranted:
		return true
	case p.PoolCap > 0 && (next.PoolCap == 0 || next.PoolCap > p.PoolCap):
		return true
	case p.Exempt || p.WithinBudget(0):
		return false
	case p.pod.Workload.Ordered || next.pod.Workload.Ordered:
		return next.WithinBudget(0)
	}
	return next.Budget > p.Budget
}

// NextChange returns how much longer a pod that waits for on-demand must wait before time alone may
// change its plan. The result is false if time never changes it. waited is the time that the pod
// has waited so far. newRevision reports whether older revisions of its workload may occupy
// on-demand.
func (s WorkloadSettings) NextChange(waited time.Duration, newRevision bool) (time.Duration, bool) {
	next := Never
	// A pod that has not waited at all has not fallen back, not even with a period of 0.
	if s.FallbackAfter != Never && (s.FallbackAfter > waited || waited == 0) {
		next = s.FallbackAfter - waited
	}
	relief := s.RolloutRelief
	if newRevision && relief != Never && (relief > waited || waited == 0) && (next == Never || relief-waited < next) {
		next = relief - waited
	}
	return max(next, 0), next != Never
}

// DependsOnSiblings reports whether the plan of a pod of w may depend on the nodes on which its
// siblings run.
func (s WorkloadSettings) DependsOnSiblings(w *Workload) bool {
	return s.MaxPerPool != nil || !w.Ordered && s.Floor(w.Desired) > 0
}

// FallbackDue reports whether a pod of the floor may use spot after the time waited. A pod that has
// not waited at all may not.
func (s WorkloadSettings) FallbackDue(waited time.Duration) bool {
	return waited > 0 && s.FallbackAfter != Never && waited >= s.FallbackAfter
}

// ReliefDue reports whether a pod of a new revision may use spot after the time waited, if an older
// revision of its workload has pods on on-demand. A pod that has not waited at all may not.
func (s WorkloadSettings) ReliefDue(waited time.Duration) bool {
	return waited > 0 && s.RolloutRelief != Never && waited >= s.RolloutRelief
}

// Exempts reports whether the floor does not apply to the pod, because the pod's own node selector
// or affinity admits only spot. Requirements that an assignment added are not the pod's own.
func (s WorkloadSettings) Exempts(pod *Pod) bool {
	return pod.OnlySpot && pod.Assigned != AssignedSpot && s.Exemptions == AllowExemptions
}

// Floor returns how many of desired replicas must survive the loss of all spot nodes. Plans,
// reports and the rebalancer all use it, so that they agree.
func (s WorkloadSettings) Floor(desired int) int { return floor(s.MinOnDemand, desired) }
