// Package rebalance plans moves of pods that would run better elsewhere: pods over their workload's
// budget on spot, pods in the way of a pod that must have on-demand, and pods that fell back to
// on-demand when spot was full.
//
// No such move is urgent. So a workload has one move at a time, the cluster has few, and a
// workload whose last move did not help is backed off.
package rebalance

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings configure a planner.
type Settings struct {
	// Rebalance and Gating are sections of the configuration. Selects replaces the selector of
	// namespaces. Gating has an effect only while new pods are gated: see GatesReplacement. New
	// pods then require their assigned capacity type by node affinity, so that autoscalers add it.
	// A surge for a floor, or with ProvisionsForReturn for a return to spot, does not need room on
	// existing nodes.
	Rebalance controller.Rebalance
	Gating    controller.Gating
	// GatesReplacement reports whether a pod that was created at that time without an assignment
	// would be replaced by an assigned pod. nil means true. If it returns false for the zero time,
	// no new pod is gated, and the planner plans as without Gating.
	GatesReplacement func(created time.Time) bool
	// Provisioning is the evidence about the nodes that autoscalers add. nil means that only the
	// nodes of the Snapshot count.
	Provisioning *simulation.Provisioning
	// Memory passes state on to the planners of later leaders; nil for none.
	Memory *leader.Memory
	// Limited returns why limits refuse the start of a move now; "" if they do not. nil: never.
	Limited func(*snapshot.Pod, migration.Reason) string
	// Selects reports whether workloads of a namespace may be moved; nil means all.
	Selects func(namespace string) bool
	// Paused is what a user has paused. No such move is planned, and one that is given up counts as
	// no failure.
	Paused safety.Paused
}

// Room is a migration.Room whose search time is limited. *simulation.Room implements it.
type Room interface {
	migration.Room
	// Expired reports whether the search time is over.
	Expired() bool
}

// guard calls step for a workload. If step panics, other workloads are planned nevertheless.
func guard(w *snapshot.Workload, step func()) {
	recovery.Guard(recovery.Workload, klog.KRef(w.Namespace, w.Name), step)
}

// recoveringRoom is a Room that finds no placement for a pod if the search panics.
type recoveringRoom struct{ Room }

func (g recoveringRoom) Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (to *snapshot.Node, why string) {
	recovery.Guard(recovery.Pod, klog.KObj(p), func() { to, why = g.Room.Replace(p, requires) })
	return to, why
}

// Planner plans moves and stores the state that its limits need. It is not safe for concurrent use.
//
// A restart loses no safety. A new planner knows the back-offs, interruptions and losses that
// Settings.Memory contains. It does not trust spot pools with young or marked nodes, and it counts
// released pods as moves in progress.
type Planner struct {
	settings Settings
	memory
}

// NewPlanner returns a planner without stored state.
func NewPlanner(settings Settings) *Planner {
	return &Planner{settings: settings, memory: memory{
		passedOn: passedOn{map[workload.OwnerKey]backOff{}, map[workload.OwnerKey]time.Time{}, map[decision.Pool]time.Time{},
			map[workload.OwnerKey]time.Time{}},
		attempts:         map[workload.OwnerKey]*attempt{},
		unavailableSince: map[workload.OwnerKey]time.Time{},
	}}
}

// Plan returns the moves to make: first heal, then make room, then replacements of pods in a floor
// that do not require on-demand, then return to spot. It returns a move again until it starts. Each
// snapshot must be later than the previous one. room must be a new Room of s. A replacement with an
// unsuitable placement keeps its reservation, so a round may see less room than there is, but never
// more.
//
// Plan moves only pods that their controller recreates elsewhere and that lose nothing but their
// place. These are pods of Deployments, ReplicaSets, StatefulSets and ReplicationControllers, whose
// annotations permit it (workload.MayDisrupt), on nodes that remain. A workload moves only if it is
// settled: no pod is leaving, waiting, missing or starting. Pods that have been waiting or missing
// for long do not prevent a heal. Moves that limits refuse are last, with Limited set.
func (p *Planner) Plan(s *snapshot.Snapshot, room Room) []migration.Move {
	r := p.plan(s, room, nil)
	return slices.Concat(r.moves, r.limited)
}

// plan plans a round. It adds to obstacles, unless it is nil, why workloads are not moved.
func (p *Planner) plan(s *snapshot.Snapshot, room Room, obstacles map[Shortfall]Obstacle) *round {
	r := &round{Planner: p, now: s.Now, snapshot: s, room: recoveringRoom{room}, transitions: s.PodsInTransition(), obstacles: obstacles,
		attempted: map[types.UID]*snapshot.Pod{}, moved: map[workload.OwnerKey]bool{}, placements: map[*snapshot.Pod]*snapshot.Node{},
		units: map[workload.OwnerKey][]*snapshot.Workload{}}
	for _, w := range s.Workloads {
		r.units[unitOf(w)] = append(r.units[unitOf(w)], w)
	}
	if p.firstRound.IsZero() {
		p.firstRound = s.Now
		p.load(p.settings.Memory)
	}
	p.observe(s)
	r.gating = p.settings.Gating.Enabled && (p.settings.GatesReplacement == nil || p.settings.GatesReplacement(time.Time{}))
	r.surges, r.feasibility = migration.CanSurge(s), p.settings.Provisioning.Feasibility(s)
	p.recordUnavailable(r.transitions, r.now)
	r.inProgress = p.track(r)
	if p.settings.Rebalance.Heal && !p.settings.Paused.Stops(safety.Heal) {
		r.toOnDemand(migration.Heal, r.podsToHeal, r.healCandidates)
	}
	if p.settings.Rebalance.MakeRoom && !p.settings.Paused.Stops(safety.MakeRoom) {
		r.makeRoom()
	}
	if r.gating && p.settings.Rebalance.Heal && p.settings.Gating.HealRunning &&
		!p.settings.Paused.Stops(safety.Assign) {
		r.toOnDemand(migration.Assign, r.podsToAssign, r.assignCandidates)
	}
	if p.settings.Rebalance.ReturnToSpot && !p.settings.Paused.Stops(safety.ReturnToSpot) {
		r.returnToSpot()
	}
	p.forget(r)
	r.reportBackOffs()
	p.settings.Memory.Store(p.passedOn)
	return r
}

type round struct {
	*Planner
	now         time.Time
	snapshot    *snapshot.Snapshot
	room        Room
	transitions map[workload.OwnerKey]snapshot.PodsInTransition
	// gating reports whether new pods are gated, and so require their assigned capacity type.
	gating bool
	// inProgress is the number of moves that have started and not ended.
	inProgress int
	// attempted contains the pods of the attempts of earlier rounds; nil if they are gone.
	attempted map[types.UID]*snapshot.Pod
	// units contains the workloads by unitOf, and moved the units that a move of this round
	// concerns.
	units map[workload.OwnerKey][]*snapshot.Workload
	moved map[workload.OwnerKey]bool
	moves []migration.Move
	// limited contains moves that limits refuse, for reports. They use none of MaxMoves.
	limited []migration.Move
	// placements has the future nodes of leaving pods' replacements and of waiting pods. nil means
	// unknown or none.
	placements map[*snapshot.Pod]*snapshot.Node
	// obstacles has why workloads are not moved; nil unless Explain needs it.
	obstacles   map[Shortfall]Obstacle
	surges      func(*snapshot.Pod) bool
	feasibility *simulation.Feasibility
}

// limitReached reports whether no more moves may start.
func (r *round) limitReached() bool {
	return r.inProgress+len(r.moves) >= int(r.settings.Rebalance.MaxMoves)
}

// isLimited reports whether limits refuse the moves of the workload of a candidate. It is called
// before the search for room, which takes time. The workload then waits, and has not failed.
func (r *round) isLimited(candidate *snapshot.Pod, reason migration.Reason) bool {
	if r.settings.Limited == nil {
		return false
	}
	why := r.settings.Limited(candidate, reason)
	if why != "" {
		r.limited = append(r.limited, migration.Move{Pod: candidate, Reason: reason, Limited: why})
	}
	return why != ""
}

// mayMove reports whether a pod of the workload may be moved; see obstacle.
func (r *round) mayMove(w *snapshot.Workload, reason migration.Reason, ignoreUnavailable bool) bool {
	return r.obstacle(w, reason, ignoreUnavailable) == Obstacle{}
}

// recreatedElsewhere reports whether the workload's controller recreates an evicted pod elsewhere.
// A Job's pod loses its work, and ends on its own.
func recreatedElsewhere(w *snapshot.Workload) bool {
	return w.HasReplicaSets() || w.StatefulSet != nil || w.Kind == "ReplicationController" && w.Key.Group == ""
}

// startupTimeout is the time for which an unready pod counts as starting. A pod that is unready for
// longer has another problem, which must not block moves of its workload forever.
const startupTimeout = 5 * time.Minute

// starting reports whether a pod of the workload may soon become ready. Then the last move, by any
// actor, has not ended.
func (r *round) starting(w *snapshot.Workload) bool {
	return anyPod(w, func(p *snapshot.Pod) bool {
		return !p.IsReady() && r.now.Sub(p.CreationTimestamp.Time) < startupTimeout
	})
}

// othersReady reports whether the workload can run without the pod for a while: all its other
// running pods are ready. Only heal may move a pod while another one is unready. A move that saves
// cost must not make a second replica unavailable.
func othersReady(p *snapshot.Pod) bool {
	return !anyPod(p.Workload, func(other *snapshot.Pod) bool { return other != p && other.Node != nil && !other.IsReady() })
}

// addMove adds a move. requires is the capacity type that the replacement will require. to is its
// expected node, or nil if a node has to be provisioned.
func (r *round) addMove(pod *snapshot.Pod, reason migration.Reason, requires decision.AssignedCapacity, to *snapshot.Node) {
	w := pod.Workload
	// As in unavailableTooLong: the Deployment may not be able to surge.
	onlySurge := reason == migration.Assign || reason == migration.Heal && r.transitions[w.Key].Missing > 0
	if a := r.attempts[keyOf(w)]; a == nil || a.pod != pod.UID || a.reason != reason {
		r.attempts[keyOf(w)] = &attempt{pod: pod.UID, reason: reason, started: r.now, provisions: to == nil, surges: r.surges(pod),
			placedBefore: placed(w, reason), desiredBefore: w.Desired, unavailableBefore: unavailable(r.transitions[w.Key])}
	}
	r.moves = append(r.moves, migration.Move{Pod: pod, Reason: reason, OnlySurge: onlySurge, Requires: requires})
	r.moved[unitOf(w)], r.placements[pod] = true, to
}

// candidates returns the suitable pods of revisions on nodes of a capacity type that may be moved,
// in the order in which the planner tries them: by revision, then as in sortCandidates. To the
// room, the pods of one revision are equal unless they are bound to a location. So candidates
// returns one pod per revision, unless the workload is a StatefulSet.
func (r *round) candidates(
	revisions []*snapshot.Revision, capacity decision.CapacityType, suitable func(*snapshot.Pod) bool,
) (candidates []*snapshot.Pod) {
	for _, revision := range revisions {
		pods := slices.DeleteFunc(slices.Clone(revision.Pods), func(p *snapshot.Pod) bool {
			return !runsOn(p, capacity) || p.Node.Facts.Signal >= decision.Drain || !workload.MayDisrupt(p.Pod, r.now)
		})
		r.sortCandidates(pods)
		if revision.Workload.StatefulSet != nil {
			candidates = append(candidates, slices.DeleteFunc(pods, func(p *snapshot.Pod) bool { return !suitable(p) })...)
		} else if i := slices.IndexFunc(pods, suitable); i >= 0 {
			candidates = append(candidates, pods[i])
		}
	}
	return candidates
}

// sortCandidates sorts pods into the order in which the planner tries them: pods whose successors
// are predictable, the pod of an attempt, unready pods, pods with a lower deletion cost, pods
// on nodes with an interruption signal, younger pods, then by namespace and name. The cost orders
// only the pods of one workload, so that no workload keeps its pods at the expense of another.
func (r *round) sortCandidates(pods []*snapshot.Pod) {
	attempted := func(p *snapshot.Pod) bool {
		a := r.attempts[keyOf(p.Workload)]
		return a != nil && a.pod == p.UID
	}
	uncertain := map[*snapshot.Pod]bool{} // without a surge, such a pod may not be moved (migration.Plan)
	for _, p := range pods {
		if p.Revision.ReplicaSet == nil {
			uncertain[p] = p.Unpredictable() != ""
		}
	}
	urgency := func(a, b *snapshot.Pod) int {
		return cmp.Or(snapshot.TrueFirst(!uncertain[a], !uncertain[b]), snapshot.TrueFirst(attempted(a), attempted(b)),
			snapshot.TrueFirst(!a.IsReady(), !b.IsReady()))
	}
	slices.SortStableFunc(pods, func(a, b *snapshot.Pod) int {
		return cmp.Or(
			urgency(a, b),
			snapshot.TrueFirst(a.Node.Facts.Signal != decision.NoSignal, b.Node.Facts.Signal != decision.NoSignal),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	byCost := map[workload.OwnerKey][]*snapshot.Pod{}
	for _, p := range pods {
		byCost[p.Workload.Key] = append(byCost[p.Workload.Key], p)
	}
	for _, own := range byCost {
		slices.SortStableFunc(own, func(a, b *snapshot.Pod) int {
			return cmp.Or(urgency(a, b), cmp.Compare(a.DeletionCost(), b.DeletionCost()))
		})
	}
	for i, p := range pods {
		own := byCost[p.Workload.Key]
		pods[i], byCost[p.Workload.Key] = own[0], own[1:]
	}
}

// unitOf returns the key of the workloads that have one move at a time: the leaders of groups and
// all groups, because a move restarts its whole group.
func unitOf(w *snapshot.Workload) workload.OwnerKey { return cmp.Or(w.GroupsKey, w.Key) }

// inFloor reports whether the pod is one of the ordinals that make up its StatefulSet's floor.
// Ordinals below the first ordinal of the StatefulSet count too.
func inFloor(p *snapshot.Pod) bool {
	w := &p.Subject.Pod.Workload
	return w.Ordered && p.Workload.Floor > 0 && w.Ordinal < p.Workload.Floor
}

func runsOn(p *snapshot.Pod, capacity decision.CapacityType) bool {
	return p.Node != nil && p.Node.Facts.Capacity.Type == capacity
}

// rolloutPaused reports whether the workload's rollout is paused, so that its current state has to
// be healed. If the object of the workload is not read, it is unknown whether a step of the rollout
// lasts for days. The rollout then counts as paused: a workload with pods in transition is not
// healed anyway.
func rolloutPaused(w *snapshot.Workload) bool {
	d := w.Deployment
	return d == nil && w.StatefulSet == nil || d != nil && d.Spec.Paused && d.Status.ObservedGeneration >= d.Generation
}

func anyPod(w *snapshot.Workload, matches func(*snapshot.Pod) bool) bool {
	return slices.ContainsFunc(w.Revisions, func(r *snapshot.Revision) bool { return slices.ContainsFunc(r.Pods, matches) })
}
