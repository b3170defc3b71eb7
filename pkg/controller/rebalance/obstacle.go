package rebalance

import (
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Cause is why the planner plans no move of a workload, in words for users.
type Cause string

// The causes. Planned is none: a move is planned, or in progress.
const (
	Planned       Cause = "the controller moves one of its replicas next"
	SwitchedOff   Cause = "the controller's configuration switches this step off"
	NotSelected   Cause = "rebalance.namespaceSelector does not select its namespace"
	NotGated      Cause = "its new pods get no gate, and their scheduler enforces no floor"
	NotRecreated  Cause = "the controller does not move pods of this kind"
	RollingOut    Cause = "its rollout ends first"
	Unsettled     Cause = "its other pods are leaving, missing, too many or waiting for a node"
	Starting      Cause = "a pod of it is starting"
	Unlabeled     Cause = "a node of its pods may still get its capacity label (labelGrace)"
	OthersUnready Cause = "another pod of it is not ready"
	Interrupted   Cause = "paused after an interruption (pauseAfterInterruption)"
	BackedOff     Cause = "back-off after a failed move"
	LimitReached  Cause = "other moves come first (maxMoves)"
	NotCalm       Cause = "the spot pool is not calm yet (calmPeriod)"
	OnePerPeriod  Cause = "the spot pool has not been calm for long: one replica of a workload returns per calmPeriod"
	NoRoom        Cause = "no room"
	NotExamined   Cause = "not examined in time"
	LocalData     Cause = "its pods would lose local data (localStorage: Keep)"
	Undisruptable Cause = "annotations of its pods forbid disruption"
	NodeDrained   Cause = "its nodes are being drained or reclaimed"
	NeedsOnDemand Cause = "its pods require on-demand"
	noneOfItsPods Cause = "none of its pods may be moved"
)

// Obstacle is why the planner plans no move of a workload. The zero value is no obstacle.
type Obstacle struct {
	Cause Cause
	// Until is the time at which the obstacle ends if nothing else happens; zero if that is
	// unknown.
	Until time.Time
	// Detail adds to Cause; it may be empty.
	Detail string
}

// Shortfall identifies a workload whose pods would run better elsewhere, and the reason to move
// them: migration.Heal or migration.ReturnToSpot.
type Shortfall struct {
	Workload workload.OwnerKey
	Reason   migration.Reason
}

// Explain returns, for each shortfall in s, why Plan plans no move. began is the start of the term
// of the leading controller; zero if it is unknown. The planner must be new, and must not plan
// afterwards. What only the memory of a running planner contains is missing: for how long replicas
// have been unavailable, and which moves it has begun that no pod shows yet.
func (p *Planner) Explain(s *snapshot.Snapshot, room Room, began time.Time) map[Shortfall]Obstacle {
	if !began.IsZero() {
		p.load(p.settings.Memory)
		p.firstRound = began
	}
	r := p.plan(s, room, map[Shortfall]Obstacle{})
	calm := r.calmSince().Add(r.settings.Rebalance.CalmPeriod.Duration)
	for _, w := range s.Workloads {
		if !w.InScope {
			continue
		}
		status := w.FloorStatus()
		for reason, isEnabled := range map[migration.Reason]bool{
			migration.Heal: p.settings.Rebalance.Heal, migration.ReturnToSpot: p.settings.Rebalance.ReturnToSpot,
		} {
			o, noted := r.obstacles[Shortfall{w.Key, reason}]
			switch {
			case noted && r.moved[unitOf(w)]: // to a node that an autoscaler adds, or for another reason
				r.obstacles[Shortfall{w.Key, reason}] = Obstacle{Cause: Planned}
			case reason == migration.ReturnToSpot && o.Cause == Interrupted && calm.After(o.Until): // no pool is calm when the pause ends
				r.obstacles[Shortfall{w.Key, reason}] = Obstacle{Cause: NotCalm, Until: calm}
			case noted, reason == migration.Heal && status.Healable == 0, reason == migration.ReturnToSpot && status.Surplus == 0:
			case !isEnabled:
				r.note(w, reason, Obstacle{Cause: SwitchedOff, Detail: "rebalance." + switches[reason]})
			case r.moved[unitOf(w)]:
				r.note(w, reason, Obstacle{Cause: Planned})
			case r.limitReached():
				r.note(w, reason, Obstacle{Cause: LimitReached})
			case reason == migration.ReturnToSpot && len(r.poolsCalmSince()) == 0:
				r.note(w, reason, noRoom("the cluster has no usable spot node"))
			default:
				r.note(w, reason, Obstacle{Cause: NotExamined})
			}
		}
	}
	return r.obstacles
}

// switches are the fields of controller.Rebalance that switch the steps off.
var switches = map[migration.Reason]string{migration.Heal: "heal", migration.ReturnToSpot: "returnToSpot"}

// note records the first obstacle of a workload, if Explain needs it. A later one concerns nodes
// that an autoscaler would have to add.
func (r *round) note(w *snapshot.Workload, reason migration.Reason, o Obstacle) {
	key := Shortfall{w.Key, reason}
	if _, noted := r.obstacles[key]; r.obstacles != nil && !noted {
		r.obstacles[key] = o
	}
}

// obstacle returns why no pod of the workload may be moved for a reason. ignoreUnavailable permits
// waiting and missing pods: the move makes room for them, or unavailableTooLong applies to them.
func (r *round) obstacle(w *snapshot.Workload, reason migration.Reason, ignoreUnavailable bool) Obstacle {
	pods, unit := r.transitions[w.Key], r.units[unitOf(w)]
	if ignoreUnavailable {
		pods.Waiting, pods.Missing = 0, 0
	}
	inTransition := func(other *snapshot.Workload) bool {
		pods := r.transitions[other.Key]
		if reason == migration.Heal && r.unavailableTooLong(other) {
			pods.Waiting, pods.Missing = 0, 0
		}
		return other != w && pods != (snapshot.PodsInTransition{})
	}
	switch {
	case !w.InScope || r.settings.Selects != nil && !r.settings.Selects(w.Namespace):
		return Obstacle{Cause: NotSelected}
	case !recreatedElsewhere(w):
		return Obstacle{Cause: NotRecreated}
	case w.KeepsScheduler && !(r.gating && r.gatesReplacements(w)):
		return Obstacle{Cause: NotGated}
	case slices.ContainsFunc(unit, func(other *snapshot.Workload) bool { return other.RollingOut }) &&
		!(reason == migration.Heal && rolloutPaused(w)):
		return Obstacle{Cause: RollingOut}
	case r.moved[unitOf(w)]:
		return Obstacle{Cause: Planned}
	case pods != (snapshot.PodsInTransition{}) || slices.ContainsFunc(unit, inTransition):
		return Obstacle{Cause: Unsettled}
	}
	if o := r.pause(w, reason, r.now, r.settings.Rebalance.PauseAfterInterruption.Duration); o.Cause != "" {
		return o
	}
	if slices.ContainsFunc(unit, r.starting) {
		return Obstacle{Cause: Starting}
	}
	return Obstacle{}
}

// staysOnOnDemand returns why a pod on on-demand does not return to spot, wherever spot has room;
// "" if it may.
func (r *round) staysOnOnDemand(p *snapshot.Pod) Cause {
	switch {
	case inFloor(p) || !r.mayBecomeSpot(p):
		return NeedsOnDemand
	case !othersReady(p):
		return OthersUnready
	case r.settings.Rebalance.LocalStorage != controller.MoveLocalStorage && workload.LosesLocalData(p.Pod):
		return LocalData
	}
	return ""
}

// noCandidate returns why none of the workload's pods on a capacity type is a candidate. stays
// returns why a pod is none for this reason. A cause that a user can change comes first.
func (r *round) noCandidate(w *snapshot.Workload, capacity decision.CapacityType, stays func(*snapshot.Pod) Cause) (o Obstacle) {
	o.Cause = noneOfItsPods
	anyPod(w, func(p *snapshot.Pod) bool {
		if !runsOn(p, capacity) {
			return false
		}
		cause := stays(p)
		switch {
		case p.Node.Facts.Signal >= decision.Drain:
			cause = NodeDrained
		case cause != NeedsOnDemand && !workload.MayDisrupt(p.Pod, r.now):
			cause = Undisruptable
		}
		if cause != "" {
			o.Cause = cause
		}
		return cause != NeedsOnDemand
	})
	return o
}

func noRoom(why string) Obstacle {
	if why == simulation.NotExamined {
		return Obstacle{Cause: NotExamined}
	}
	return Obstacle{Cause: NoRoom, Detail: why}
}
