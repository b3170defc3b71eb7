package decision

import (
	"fmt"
	"time"
)

// OwnerNews is how long a pod waits for news of a workload that it has outgrown before it is judged by what is known. Watches of different
// kinds are milliseconds apart, on a busy machine a second or two.
const OwnerNews = 5 * time.Second

// Batch says whether a workload is a Job, and whether the loss of one of its pods only costs time.
type Batch int8

const (
	// NotBatch: no Job.
	NotBatch Batch = iota
	// Retriable: a Job that starts a lost pod again.
	Retriable
	// NotRetriable: a Job that a lost pod fails (backoffLimit 0, and no podFailurePolicy that ignores disruptions).
	NotRetriable
)

// Workload is what owns a pod and carries its replica count.
type Workload struct {
	// Kind is the kind of the object that carries the replica count ("Deployment", "StatefulSet", "Job", …); "Pod" for a pod
	// without a controller.
	Kind string
	// Revision names, for people, what the pod's siblings are counted by: for a Deployment the pod's ReplicaSet.
	Revision string
	// Annotations are those of the object that carries the replica count.
	Annotations map[string]string
	// Desired is its replica count.
	Desired int
	// Ordinal is the pod's place in its StatefulSet, counted from the set's first ordinal; meaningful if Ordered.
	Ordinal int
	// Ordered: the floor is the first ordinals, and nothing is counted.
	Ordered bool
	// HoldsUpLater: pods of later ordinals are not even created before this one is ready (OrderedReady).
	HoldsUpLater bool
	Batch        Batch
}

// Pod is one pod to place.
type Pod struct {
	Namespace     string
	Labels        map[string]string
	Annotations   map[string]string
	PriorityClass string
	Priority      int32
	QOSClass      string
	// OnlySpot: the pod's own node selector or required node affinity admits no on-demand node.
	OnlySpot bool
	// OnlyOnDemand: they admit no spot node.
	OnlyOnDemand bool
	// Assigned is the capacity type that the pod was assigned before it was scheduled. Its writer may be anybody who may write the pod, so it
	// only makes a pod more modest: no plan admits it to a node that it would not be admitted to without, and it evicts no more.
	Assigned Assignment
	// Granted is the Grant that a predecessor of the pod has earned by waiting; NotGranted if none has.
	Granted  Grant
	Workload Workload
}

// Outgrown returns why what is known of the pod's workload must be older than the pod; empty if nothing says so. No controller makes more
// pods than replicas, nor an ordinal beyond the last: such a pod was made after the workload was scaled up, or is about to be deleted after
// it was scaled down. A floor of too few replicas would put it on on-demand for good, or an ordinal of the floor on spot. A Job says
// nothing by its pods: they end before it notices.
func (p *Pod) Outgrown(settings Settings, placed Placed) string {
	w := &p.Workload
	switch {
	case w.Batch != NotBatch || settings.Exempts(p):
	case w.Ordered && w.Ordinal >= w.Desired:
		return fmt.Sprintf("owner not up to date yet: %s has no ordinal %d with %d replicas; waits for news of its %s, %s at most",
			w.Revision, w.Ordinal, w.Desired, w.Kind, OwnerNews)
	case !w.Ordered && placed.OnDemand+placed.Spot >= w.Desired:
		return fmt.Sprintf("owner not up to date yet: all %d replicas of %s are placed; waits for news of its %s, %s at most",
			w.Desired, w.Revision, w.Kind, OwnerNews)
	}
	return ""
}

// Placed counts the pods of one revision that are bound, assumed or nominated to nodes that exist, and are neither terminal nor terminating.
type Placed struct {
	Spot, OnDemand int
}

// Add counts n more pods on nodes of that capacity type.
func (p *Placed) Add(capacity CapacityType, n int) {
	if capacity == Spot {
		p.Spot += n
	} else {
		p.OnDemand += n
	}
}

// Waiting is what a pod's waiting so far may have earned it.
type Waiting struct {
	// For is the time since the pod was first found unschedulable; 0 if it never was.
	For time.Duration
	// OlderOnDemand: an older revision of the pod's workload has pods on on-demand nodes.
	OlderOnDemand bool
}

// Grant is why a pod may take any spot node, over budget and cap.
type Grant int8

const (
	// NotGranted: it may not.
	NotGranted Grant = iota
	// Anyway: the workload says ScheduleAnyway.
	Anyway
	// FellBack: it has waited for FallbackAfter, or a pod that it replaces has.
	FellBack
	// Relieved: it has waited for RolloutRelief, or a pod that it replaces has, while an older revision holds on-demand.
	Relieved
)

// Plan is the decision for one pod as far as it does not depend on the node.
type Plan struct {
	// Floor is how many replicas of the workload must survive the loss of all spot; Budget how many of the revision may be on spot.
	Floor, Budget int
	// PoolCap is how many of the revision one spot pool may hold; 0 means no cap.
	PoolCap int
	// Exempt: the user's own node selector or affinity admits only spot, and Settings.Exemptions allows that, so the budget is lifted
	// from this pod. The cap is not: it says where on spot.
	Exempt bool
	// Grant, if any, lifts both budget and cap from this pod: it has to run somewhere.
	Grant Grant
	// Prefer is the capacity type that the pod should have where it can: the floor first, then spot.
	Prefer CapacityType

	placed        Placed
	onlySpot      bool
	onlyOnDemand  bool
	assigned      Assignment
	overflow      OverflowPolicy
	ordered       bool
	ordinal       int
	holdsUpLater  bool
	revision      string
	fallbackAfter time.Duration
}

// NewPlan returns the decision for pod under settings, given where its revision stands and how long it has waited.
func NewPlan(pod *Pod, settings Settings, placed Placed, waiting Waiting) Plan {
	w := &pod.Workload
	plan := Plan{
		Floor:         floor(settings.MinOnDemand, w.Desired),
		Exempt:        settings.Exempts(pod),
		PoolCap:       poolCap(settings.MaxPerPool, w.Desired),
		placed:        placed,
		onlySpot:      pod.OnlySpot,
		onlyOnDemand:  pod.OnlyOnDemand,
		assigned:      pod.Assigned,
		overflow:      settings.Overflow,
		ordered:       w.Ordered,
		ordinal:       w.Ordinal,
		holdsUpLater:  w.HoldsUpLater,
		revision:      w.Revision,
		fallbackAfter: settings.FallbackAfter,
	}
	plan.Budget = w.Desired - plan.Floor
	switch {
	case settings.WhenUnsatisfiable == ScheduleAnyway:
		plan.Grant = Anyway
	case pod.Granted != NotGranted:
		plan.Grant = pod.Granted
	case pod.OnlyOnDemand:
		// No spot node would take it: it waits for on-demand, however long it has waited.
	case waiting.For > 0 && settings.FallbackAfter != Never && waiting.For >= settings.FallbackAfter:
		plan.Grant = FellBack
	case waiting.OlderOnDemand && settings.Relieves(waiting.For):
		plan.Grant = Relieved
	}
	plan.Prefer = Spot
	if !plan.Exempt && !plan.KeptOffOnDemand() && (!plan.WithinBudget(0) || !plan.BeyondFloor()) {
		plan.Prefer = OnDemand
	}
	return plan
}

// WithinBudget reports whether one more replica may go to spot, if morePlaced more of the revision stood there than the plan
// was made for. A StatefulSet is not counted: the pod's ordinal decides.
func (p *Plan) WithinBudget(morePlaced int) bool {
	if p.ordered {
		// Ordinals below the set's first one are what an edited start leaves behind: they go with the floor, if there is one.
		return p.Floor == 0 || p.ordinal >= p.Floor
	}
	return p.placed.Spot+morePlaced < p.Budget
}

// MayTakeSpot reports whether some spot node may be open to the pod.
func (p *Plan) MayTakeSpot() bool { return p.Exempt || p.Grant != NotGranted || p.WithinBudget(0) }

// BeyondFloor reports whether the floor is met without the pod: as many replicas of its revision as the floor has are on on-demand, or
// its ordinal is none of the floor's. The same holds for a pod that was assigned beyond the floor, as long as the budget has room for it:
// room on on-demand is for siblings that were assigned to the floor, and may not be there yet. If the budget is used up, fewer siblings were
// assigned to the floor than it has now, and the pod is judged as if nothing had been assigned.
func (p *Plan) BeyondFloor() bool {
	if p.ordered {
		// As in WithinBudget, ordinals below the set's first one go with the floor.
		return p.Floor == 0 || p.ordinal >= p.Floor
	}
	return p.floorMet() || p.assigned.Beyond() && p.WithinBudget(0)
}

// floorMet reports whether on-demand holds as many replicas of a revision that is not ordered as the floor has.
func (p *Plan) floorMet() bool { return p.placed.OnDemand >= p.Floor }

// MayFreeSiblings reports whether siblings that were assigned beyond the floor may take on-demand once the pod is on spot, and not before:
// overflow Never keeps them off as long as the budget has room, and the pod uses it up.
func (p *Plan) MayFreeSiblings() bool {
	return p.overflow == NeverOverflow && !p.ordered && !p.floorMet() && p.placed.Spot+1 >= p.Budget
}

// KeptOffOnDemand reports whether the pod may take no on-demand node because of overflow Never. A pod that admits no spot node by itself
// is not kept off: it could never run.
func (p *Plan) KeptOffOnDemand() bool {
	return p.overflow == NeverOverflow && p.Overflows()
}

// Overflows reports whether the pod, on an on-demand node, would take room that is meant for floors: it is beyond the floor, and its own node
// selector or affinity admits spot. Such a pod evicts no other one from on-demand.
func (p *Plan) Overflows() bool { return !p.onlyOnDemand && p.BeyondFloor() }

// MayTakeOnDemand reports whether some on-demand node may be open to the pod.
func (p *Plan) MayTakeOnDemand() bool { return !p.onlySpot && !p.KeptOffOnDemand() }

// MustHaveOnDemand reports whether the policy keeps the pod off every spot node, and some on-demand node may be open to it.
func (p *Plan) MustHaveOnDemand() bool { return !p.MayTakeSpot() && p.MayTakeOnDemand() }

// Counted reports whether the plan depends on where the pod's siblings are: on how many are on spot, or with overflow Never on how many
// are on on-demand.
func (p *Plan) Counted() bool {
	if p.overflow == NeverOverflow && !p.onlyOnDemand && !p.onlySpot && !p.ordered && p.Floor > 0 {
		return true
	}
	return p.Grant == NotGranted && (p.PoolCap > 0 || !p.ordered && !p.Exempt && p.Budget > 0)
}

// MayOpen reports whether next may admit the pod to a node that p refuses. Both are plans for the same pod; in between, the replica count
// of its workload has changed, and its settings have not. It assumes that no replica of the revision has left spot since p was made, and none
// has used up the budget (MayFreeSiblings): the scheduler tries waiting pods again when one does.
func (p *Plan) MayOpen(next *Plan) bool {
	switch {
	case p.Overflows() && !next.Overflows():
		return true // a replica of the floor may take on-demand with overflow Never, and may preempt there
	case p.Grant != NotGranted:
		return false // p refuses no node that next admits
	case next.Grant != NotGranted:
		return true
	case p.PoolCap > 0 && (next.PoolCap == 0 || next.PoolCap > p.PoolCap):
		return true
	case p.Exempt || p.WithinBudget(0):
		return false
	case p.ordered || next.ordered:
		return next.WithinBudget(0)
	}
	return next.Budget > p.Budget
}

// NextChange returns after how much more waiting, for a pod that has waited for waited, time alone may change the plan of a pod
// that waits for on-demand; false if it never will. newRevision says whether older revisions of its workload may be in its way.
func (s Settings) NextChange(waited time.Duration, newRevision bool) (time.Duration, bool) {
	next := Never
	// A pod that has not waited at all has not fallen back, not even after 0.
	if s.FallbackAfter != Never && (s.FallbackAfter > waited || waited == 0) {
		next = s.FallbackAfter - waited
	}
	relief := s.RolloutRelief
	if newRevision && relief != Never && (relief > waited || waited == 0) && (next == Never || relief-waited < next) {
		next = relief - waited
	}
	return max(next, 0), next != Never
}

// Counts reports whether the plan of a pod of w may depend on where its siblings are.
func (s Settings) Counts(w *Workload) bool {
	return s.MaxPerPool != nil || !w.Ordered && s.Floor(w.Desired) > 0
}

// Relieves reports whether a pod of a new revision that has waited for waited may take spot if an older revision of its workload
// has pods on on-demand. A pod that has not waited at all may not.
func (s Settings) Relieves(waited time.Duration) bool {
	return waited > 0 && s.RolloutRelief != Never && waited >= s.RolloutRelief
}

// Exempts reports whether no floor keeps the pod off spot, because its own node selector or affinity admits nothing else. What it requires
// by an assignment is not its own.
func (s Settings) Exempts(pod *Pod) bool {
	return pod.OnlySpot && pod.Assigned != AssignedSpot && s.Exemptions == AllowExemptions
}

// Floor returns how many of desired replicas must survive the loss of all spot.
func (s Settings) Floor(desired int) int { return floor(s.MinOnDemand, desired) }
