package migration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// start returns the first action of a move, unless its pod waits or the action is postponed.
func (p *planner) start(m Move) Action {
	method, noSurge := p.methodOf(m)
	switch obstacle := p.obstacle(m, method); {
	case obstacle != "":
		m.Useless = obstacle
		return m.action(Stay, "", obstacle)
	case method == "":
		return Action{}
	case method == Delete:
		return p.deletion(m)
	case method == Evict && p.lowerOrdinalUnready(m.Pod):
		if p.changedSince(m.Pod, m.Noticed) {
			return Action{} // the pod with the lower ordinal may be moving
		}
		return m.action(Stay, "", "Kubernetes does not create it again before the pods with lower ordinals are ready")
	case method == Evict && m.Deadline.IsZero() && m.Reason != Requested && larger(m.Pod):
		return m.action(Stay, method, "its owner's template requests more than the pod uses, and no surge is possible: "+noSurge)
	case method == Evict && m.Reason == Drain:
		return m.action(Stay, method, "no replacement starts before it is evicted: "+noSurge)
	}
	first := p.withReplacement(m, method)
	if first.Kind == EvictPod {
		first.Why += "; no surge: " + noSurge
	}
	if first.WithoutRoom && !m.Deadline.IsZero() {
		p.postponed = append(p.postponed, first)
		return Action{}
	}
	return p.inTurn(first)
}

// larger reports whether the pod's successor would request more than the pod.
func larger(pod *snapshot.Pod) bool {
	_, larger := pod.Successor()
	return larger
}

// withReplacement returns the first action of a surge or an eviction, and reserves room for the
// replacement.
func (p *planner) withReplacement(m Move, method Method) Action {
	first, requires := m.action(Release, method, ""), m.Requires
	if method == Evict {
		first.Kind = EvictPod
		if requires == decision.AssignedSpot {
			requires = decision.Unassigned // only the replacement of a released pod can be made to require spot
		}
	}
	first.ToSpot = requires == decision.AssignedSpot
	to, full := p.room.Replace(m.Pod, requires)
	if to == nil {
		return p.withoutRoom(first, requires, full)
	}
	capacity, ok := m.Reason.destination()
	if ok && to.Facts.Capacity.Type != capacity || full == simulation.AfterPreemption && (m.Reason == ReturnToSpot || m.Reason == Assign) {
		return Action{} // a more urgent move has reserved the room that this move was planned for
	}
	first.Why = strings.TrimSpace("a replacement fits on node " + to.Name + " " + full)
	return first
}

// withoutRoom returns the first action of a move whose replacement may wait for a new node, or
// a Stay. full explains why no node has room.
func (p *planner) withoutRoom(first Action, requires decision.AssignedCapacity, full string) Action {
	first.WithoutRoom = true
	examined, surge, urgent := full != simulation.NotExamined, first.Kind == Release, !first.Deadline.IsZero()
	// A pod that can run nowhere else serves until its last moment. A surge does not end that.
	mayWait := urgent && (surge || p.budgets.selects(first.Pod) && p.feasibility().FitsOtherNode(first.Pod, requires))
	full = "nothing has room for a replacement: " + full
	switch {
	case mayWait && !examined:
		// Other pods may make the search too long in every round. The scheduler finds the room if
		// it exists.
		first.Why = "no time was left to look for room for a replacement"
	case !examined:
		return Action{} // a later round searches for room
	case mayWait:
		// The earlier the replacement is pending, the earlier an autoscaler adds a node for it.
		first.Why = full + "; it waits for a new node"
	case urgent:
		return first.action(Stay, "", full+"; it runs until "+p.lastMoment(first.Move).UTC().Format(time.RFC3339))
	case surge && !p.feasibility().FitsNewNode(first.Pod, requires):
		return first.action(Stay, "", full+"; no node that an autoscaler may add could run it")
	case surge && requires != decision.Unassigned:
		first.Why = fmt.Sprintf("%s; it requires %s, so that an autoscaler adds a node", full, requires)
	case surge && (first.Reason == Drain || first.Reason == Requested) && slices.Contains(p.settings.Buying, first.Reason):
		first.Why = full + "; an autoscaler may add a node"
	default:
		return first.action(Stay, "", full)
	}
	return first
}

// destination returns the capacity type of the nodes on which a replacement is useful. ok is false
// if every capacity type is.
func (r Reason) destination() (capacity decision.CapacityType, ok bool) {
	switch r {
	case Heal, Assign:
		return decision.OnDemand, true
	case MakeRoom, ReturnToSpot:
		return decision.Spot, true
	}
	return 0, false
}

// inTurn returns the first action of a move, unless this is an eviction that comes too early. Such
// a pod waits until another replica serves, or until its last moment. Without a deadline it has no
// last moment. An EvictionRequest is carried out nevertheless.
//
// Replicas that no PodDisruptionBudget protects are evicted one after the other: the next one when
// all others serve. If replacements start too slowly for that, spreadMoment decides.
func (p *planner) inTurn(a Action) Action {
	if a.Kind != EvictPod || a.Pod.OwnWorkload() == nil {
		return a
	}
	missing, replicas := p.missingWithout(a.Pod)
	wait := a.OnlySurge
	switch {
	case a.Deadline.IsZero():
		wait = wait || a.Reason != Requested && replicas > 1 && p.serves(a.Pod) && !p.safeWithout(a.Pod)
	case replicas == 1 || !p.serves(a.Pod):
	case !p.budgets.selects(a.Pod) && missing > 1 && a.Pod.OwnWorkload().Kind != "Job": // the pods of a Job do not replace each other
		wait = wait || p.now.Before(p.spreadMoment(a.Move))
	default:
		wait = wait || p.isSpread(a.Move) && missing >= replicas
	}
	if wait {
		return Action{}
	}
	return a
}

// maxPending is how long a pending replacement with room postpones moves without room, counted from
// the release of its pod. On an idle machine it is scheduled within a second. A replacement that a
// quota forbids, or that the scheduler cannot place for another reason, postpones no move for
// longer.
const maxPending = 15 * time.Second

// maxPostponed is how long after its notice a move without room waits for replacements with room.
const maxPostponed = 10 * time.Second

// startPostponed adds the first actions of the moves whose replacements have no room. While a
// replacement with room is pending, they wait for half of the notice or maxPostponed, whichever is
// shorter. The scheduler processes pods in order of arrival, and would give the room of one
// workload's floor to a replica beyond another workload's floor.
func (p *planner) startPostponed() {
	if len(p.postponed) == 0 {
		return
	}
	for _, pod := range p.snapshot.Pods {
		if pod.Spec.NodeName == "" && workload.Live(pod.Pod) && len(pod.Spec.SchedulingGates) == 0 {
			p.reserve(pod, pod.CreationTimestamp.Time)
		}
	}
	for _, first := range p.postponed {
		until := first.Noticed.Add(min(first.Deadline.Sub(first.Noticed)/2, maxPostponed))
		if !p.replacementPending || !p.now.Before(until) {
			p.add(first.Move, func(Move) Action { return p.inTurn(first) })
		}
	}
}
