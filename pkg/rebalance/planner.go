// Package rebalance says which pods would stand better elsewhere: those over their workload's budget on spot, those in the way of a pod that
// must have on-demand, and those that fell back to on-demand when spot was full.
//
// Nothing here is urgent, so everything is held back: one move of a workload at a time, few in the cluster, none where the last did not help.
package rebalance

import (
	"cmp"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// Settings are what a planner goes by.
type Settings struct {
	// Heal, MakeRoom and ReturnToSpot turn the reasons on.
	Heal, MakeRoom, ReturnToSpot bool
	// MaxMoves is how many moves may be under way at a time in the whole cluster.
	MaxMoves int
	// Pause is how long a workload is left alone after one of its pods stood on a node that goes, or that vanished and was spot.
	Pause time.Duration
	// Calm is how long a spot pool must have existed, and have lost no node and been announced to lose none, before pods return to it.
	Calm time.Duration
	// MoveLocalStorage: pods that lose data on their node by it return to spot, too.
	MoveLocalStorage bool
	// Gating: new pods require the capacity type that they were assigned, by their own node affinity, so that autoscalers buy it: a replica of a
	// floor on-demand. A surge for a floor then needs no room that exists. It counts only while new pods are gated: see WouldBeGated.
	Gating bool
	// BuyForReturn: a replica that returns to spot by surge requires spot, and needs no room that exists. It counts only with Gating.
	BuyForReturn bool
	// HealRunning: replicas that make up a floor on on-demand and do not require it are replaced. It counts only with Gating.
	HealRunning bool
	// WouldBeGated reports whether a pod that was made at that time, and has been assigned nothing, would be replaced by one that is. nil: it would.
	// If it reports false for the zero time, no new pod is gated, and the planner plans as without Gating.
	WouldBeGated func(made time.Time) bool
	// Selects reports whether the workloads of a namespace are moved; nil: those of all are.
	Selects func(namespace string) bool
}

// Room is where a replacement would be placed: *cluster.Room.
type Room interface {
	Replace(p *cluster.Pod, requires decision.Assignment) (to *cluster.Node, why string)
	// Over reports whether there is no time left to look for more.
	Over() bool
}

// guarded is a Room that has none for a pod which it cannot be asked about.
type guarded struct{ Room }

func (g guarded) Replace(p *cluster.Pod, requires decision.Assignment) (to *cluster.Node, why string) {
	defer recovery.Recover(recovery.Pod, klog.KObj(p))
	return g.Room.Replace(p, requires)
}

// Planner plans, and remembers what limits need. It is not for concurrent use.
//
// It may forget: what it does not know of after a start it learns from the nodes (a pool whose nodes are young, or are marked, is not trusted)
// and from released pods, which count as moves under way.
type Planner struct {
	settings Settings
	memory
}

// NewPlanner returns a planner that remembers nothing.
func NewPlanner(settings Settings) *Planner {
	return &Planner{settings: settings, memory: newMemory()}
}

// Plan returns the moves to make, heal first, then make room, then what a floor has that does not require on-demand, then return to spot; a
// move that is not begun yet is named again. What s says
// must be later than what the last one said. room must be one of s that nobody has taken from: a replacement that would land wrong keeps what it
// took, so a round may see less room than there is, never more.
//
// Only what a controller is known to make anew elsewhere is moved, at no loss but that of its place: pods of Deployments, ReplicaSets,
// StatefulSets and ReplicationControllers, whose annotations do not forbid it (kube.MayDisrupt), on nodes that stay. A workload moves only if it
// is settled: nothing of it leaves, waits, is missing or has just started. What waits or is missing for long keeps nothing from being healed.
func (p *Planner) Plan(s *cluster.Snapshot, room Room) []migration.Move {
	r := &round{Planner: p, now: s.Now, snapshot: s, room: guarded{room}, motions: s.Motions(), moved: map[kube.OwnerKey]bool{}, places: map[*cluster.Pod]*cluster.Node{}}
	if p.since.IsZero() {
		p.since = s.Now
	}
	p.observe(s)
	r.gating = p.settings.Gating && (p.settings.WouldBeGated == nil || p.settings.WouldBeGated(time.Time{}))
	r.surges = sync.OnceValue(func() func(*cluster.Pod) bool { return migration.Surges(s) })
	p.noteLacking(r.motions, r.now)
	r.underWay = p.follow(r)
	if p.settings.Heal {
		r.heal()
	}
	if p.settings.MakeRoom {
		r.makeRoom()
	}
	if r.gating && p.settings.HealRunning {
		r.assignRunning()
	}
	if p.settings.ReturnToSpot {
		r.returnToSpot()
	}
	p.forget(r)
	return r.moves
}

// round is one run of Plan.
type round struct {
	*Planner
	now      time.Time
	snapshot *cluster.Snapshot
	room     Room
	motions  map[kube.OwnerKey]cluster.Motion
	// gating reports whether new pods are gated, and so require what they are assigned.
	gating bool
	// underWay is how many moves have begun and not ended.
	underWay int
	// moved are the workloads that have their move.
	moved map[kube.OwnerKey]bool
	moves []migration.Move
	// places is where pods that are on their way will stand, or their replacements; nil: not known, or nowhere.
	places map[*cluster.Pod]*cluster.Node
	// surges returns which pods can be moved by surge.
	surges func() func(*cluster.Pod) bool
}

// full reports whether no more moves may be begun.
func (r *round) full() bool { return r.underWay+len(r.moves) >= r.settings.MaxMoves }

// free reports whether a pod of the workload may be moved. lacking says that it may lack pods: the move is to make room for them, or they are
// stuck.
func (r *round) free(w *cluster.Workload, lacking bool) bool {
	motion := r.motions[w.Key]
	if lacking {
		motion.Waiting, motion.Missing = 0, 0
	}
	return w.Ours && (r.settings.Selects == nil || r.settings.Selects(w.Namespace)) && motion == (cluster.Motion{}) && !r.moved[w.Key] && movable(w) &&
		!r.rests(w.Key, r.now, r.settings.Pause) && !r.starting(w)
}

// movable reports whether a pod of the workload that leaves is made anew elsewhere. A Job's pod loses its work, and ends by itself.
func movable(w *cluster.Workload) bool {
	return slices.Contains([]string{"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"}, w.Kind)
}

// startsWithin is for how long a pod that is not ready counts as starting. One that is not ready for longer has other troubles, which must
// not keep its workload where it stands for ever.
const startsWithin = 5 * time.Minute

// starting reports whether a pod of the workload is about to become ready: the last move, whoever made it, has not ended.
func (r *round) starting(w *cluster.Workload) bool {
	return anyPod(w, func(p *cluster.Pod) bool { return !ready(p) && r.now.Sub(p.CreationTimestamp.Time) < startsWithin })
}

// spared reports whether the workload can do without the pod for a while: all others of it that run are ready. Only what stands wrong is moved
// while one of them is not: to save cost, nobody loses a second replica.
func spared(p *cluster.Pod) bool {
	return !anyPod(p.Workload, func(other *cluster.Pod) bool { return other != p && other.Node != nil && !ready(other) })
}

// begin adds a move. requires is what the replacement will require, and to is where it would be placed; nil: on a node that has to be bought.
func (r *round) begin(pod *cluster.Pod, reason migration.Reason, requires decision.Assignment, to *cluster.Node) {
	w := pod.Workload
	// As in stuck: the Deployment may not surge.
	onlySurge := reason == migration.Heal && r.motions[w.Key].Missing > 0
	if a := r.attempts[w.Key]; a == nil || a.pod != pod.UID || a.reason != reason {
		r.attempts[w.Key] = &attempt{pod: pod.UID, reason: reason, begun: r.now, before: lacks(w, reason), lacking: lacking(r.motions[w.Key])}
	}
	r.moves = append(r.moves, migration.Move{Pod: pod, Reason: reason, OnlySurge: onlySurge, Requires: requires})
	r.moved[w.Key], r.places[pod] = true, to
}

// candidates are the pods of a revision that are on nodes of a capacity type and may be moved, in the order in which they are tried: the one
// that was begun with, one that serves nobody, one whose node may go anyway, the youngest, by name.
func (r *round) candidates(revision *cluster.Revision, capacity decision.CapacityType) []*cluster.Pod {
	pods := slices.DeleteFunc(slices.Clone(revision.Pods), func(p *cluster.Pod) bool {
		return !on(p, capacity) || p.Node.Facts.Signal >= decision.Drain || !kube.MayDisrupt(p.Pod, r.now)
	})
	r.order(pods)
	return pods
}

// order sorts pods into the order in which they are tried.
func (r *round) order(pods []*cluster.Pod) {
	begun := func(p *cluster.Pod) bool {
		a := r.attempts[p.Workload.Key]
		return a != nil && a.pod == p.UID
	}
	slices.SortStableFunc(pods, func(a, b *cluster.Pod) int {
		return cmp.Or(
			first(begun(a), begun(b)),
			first(!ready(a), !ready(b)),
			first(a.Node.Facts.Signal != decision.NoSignal, b.Node.Facts.Signal != decision.NoSignal),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// belowFloor reports whether the pod is one of the ordinals that make up its StatefulSet's floor; those below the set's first go with it.
func belowFloor(p *cluster.Pod) bool {
	w := &p.Subject.Pod.Workload
	return w.Ordered && p.Workload.Floor > 0 && w.Ordinal < p.Workload.Floor
}

// on reports whether the pod stands on a node of a capacity type.
func on(p *cluster.Pod, capacity decision.CapacityType) bool {
	return p.Node != nil && p.Node.Facts.Capacity.Type == capacity
}

// onlySpot reports whether the pod's own affinity keeps it off on-demand: nobody can heal that.
func onlySpot(p *cluster.Pod) bool { return p.Subject.Pod.OnlySpot }

// halted reports whether nobody completes the workload's rollout, so that what is left of it is to be put right as it stands.
func halted(w *cluster.Workload) bool {
	return w.Deployment != nil && w.Deployment.Spec.Paused && observed(w.Deployment)
}

// observed reports whether the Deployment's status is of its newest specification.
func observed(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

func anyPod(w *cluster.Workload, is func(*cluster.Pod) bool) bool {
	return slices.ContainsFunc(w.Revisions, func(r *cluster.Revision) bool { return slices.ContainsFunc(r.Pods, is) })
}

func ready(p *cluster.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}
