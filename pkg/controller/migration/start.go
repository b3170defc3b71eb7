package migration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// start returns the first action of a move. It is zero if the pod waits or the action is postponed:
// nothing is done for the pod before its last moment, unless a later plan decides otherwise.
func (p *planner) start(o *observation) Action {
	if o.Pod.Node == nil { // the move is off a deleted node: see observation.startable
		return o.action(DeletePod, Delete, "its node was deleted")
	}
	last := p.lastMomentReached(o)
	if last && p.succeedsDeleted(o) || !last && p.waits(o) {
		return Action{}
	}
	o.Useless = p.obstacle(o, last)
	switch {
	case o.Useless != "":
		return o.action(Stay, "", o.Useless)
	case p.isPaused(o):
		return Action{}
	case last:
		return p.deletion(o)
	case o.Limited != "":
		return o.action(Stay, "", o.Limited)
	case o.noSurge == "":
		return p.withReplacement(o, o.action(Release, Surge, ""))
	case o.Unconfirmed && !p.mayEndFairly(o):
		return o.action(Stay, "", "the breaker is open, nothing else confirms the reclaim of the node, and no surge is possible: "+o.noSurge)
	case o.ordinalUnready && o.changing:
		return Action{} // the pod with the lower ordinal may be moving
	case o.ordinalUnready:
		return o.action(Stay, "", "Kubernetes does not create it again before the pods with lower ordinals are ready")
	case o.unpredictable != "" && o.Deadline.IsZero() && o.Reason != Requested:
		return o.action(Stay, Evict, o.unpredictable+", and no surge is possible: "+o.noSurge)
	case o.Reason == Drain:
		return o.action(Stay, Evict, "no replacement starts before it is evicted: "+o.noSurge)
	}
	return p.withReplacement(o, o.action(EvictPod, Evict, ""))
}

// mayEndFairly reports whether an unconfirmed pod that cannot surge may be evicted, in turn, if a
// replacement has room: its node may vanish without a grace period for the pod. The eviction of a
// pod of a Job must not count as a failure of the Job.
func (p *planner) mayEndFairly(o *observation) bool {
	w := o.Pod.OwnWorkload()
	return !o.FairEnd.IsZero() && !p.now.Before(o.FairEnd) && w != nil && len(o.budgets) <= 1 &&
		(w.Kind != "Job" || o.Pod.Subject != nil && o.Pod.Subject.Workload.IgnoresDisruptions)
}

// mayGetTurn reports whether the fair end of a pod may come: it is never that of the last pod that
// serves, and a PodDisruptionBudget that requires all pods allows none.
func (o *observation) mayGetTurn() bool {
	return (!o.serves || o.serving > 1) && (len(o.budgets) == 0 || int(o.budgets[0].Status.DesiredHealthy) < o.live)
}

// succeedsDeleted reports whether the pod is the successor of a pod that was deleted at its own
// last moment.
func (p *planner) succeedsDeleted(o *observation) bool {
	created := o.Pod.CreationTimestamp.Time
	return !o.Noticed.IsZero() && !created.Before(o.Noticed) && !created.Before(p.lastMoment(o))
}

// waits reports whether the pod runs until its last moment, or until a client that drains its node
// evicts it.
func (p *planner) waits(o *observation) bool {
	switch {
	case !o.recreated:
		return true
	case o.Deadline.IsZero():
		// Only a reclaim is worth the risk that an unknown controller does not recreate the pod.
		return o.unsupported || o.Reason == Drain && !p.needsReplacementFirst(o)
	case o.Reason == Drain && o.Pod.Revision != nil:
		// The draining client spares the pod, and its replacement can start later.
		return p.now.Before(p.lastMoment(o).Add(-p.replacementTimeout(o.Pod.Revision, o.Reason)))
	}
	return false
}

// needsReplacementFirst reports whether a pod on a draining node needs a replacement before its
// eviction. That is so if its PodDisruptionBudget currently allows no eviction, or if
// chooseFirstReplaced chooses it. It is false if several PodDisruptionBudgets select the pod,
// because the API server never evicts such a pod, with or without a replacement.
//
// On a node that a user or a tool drains, the controller only releases pods, so that their
// replacements start first. The draining client evicts the pods: it retries evictions that a
// PodDisruptionBudget refused. Once the replacement is ready, the PodDisruptionBudget allows the
// eviction of the released pod.
func (p *planner) needsReplacementFirst(o *observation) bool {
	if len(o.budgets) > 1 || !o.serves {
		return false
	}
	if len(o.budgets) == 1 && o.budgets[0].allowed <= 0 {
		return true
	}
	p.chooseFirstReplaced()
	return o.firstReplaced == o
}

// chooseFirstReplaced chooses one serving pod of each workload that serves only on nodes that do
// not remain, while none of its pods is released: the first by name that the draining client
// evicts and that can be released. If none can, it is the first that the client evicts.
func chooseFirstReplaced(observed []*observation) {
	for _, o := range observed {
		if o.Reason != Drain || !o.Deadline.IsZero() || o.safe+o.released > 0 || !o.startable || !o.serves || len(o.budgets) > 1 {
			continue
		}
		if first := o.firstReplaced; first == nil || first.noSurge != "" && o.noSurge == "" {
			o.firstReplaced = o
		}
	}
}

// withReplacement returns the first action of a surge or an eviction, with the reason, and reserves
// room for the replacement. It is zero if the action is postponed or comes too early.
func (p *planner) withReplacement(o *observation, first Action) Action {
	requires := o.Requires
	if first.Kind == EvictPod && requires == decision.AssignedSpot {
		requires = decision.Unassigned // only the replacement of a released pod can be made to require spot
	}
	first.ToSpot = requires == decision.AssignedSpot
	to, full := p.room.Replace(o.Pod, requires)
	if to != nil && o.Reason == Advisory && to.Facts.Signal == decision.Advisory {
		to, full = nil, "only nodes with an advisory signal have room for it"
	}
	p.roomPromised = p.roomPromised || to != nil && o.Unconfirmed && first.Kind == EvictPod && o.mayGetTurn()
	if to == nil {
		first = p.withoutRoom(o, first, requires, full)
	} else {
		capacity, ok := o.Reason.destination()
		if ok && to.Facts.Capacity.Type != capacity || full == simulation.AfterPreemption && (o.Reason == ReturnToSpot || o.Reason == Assign) {
			return Action{} // a more urgent move has reserved the room that this move was planned for
		}
		first.Why = strings.TrimSpace("by requests, node " + to.Name + " has room for a replacement " + full)
	}
	if first.Kind == EvictPod {
		first.Why += "; no surge: " + o.noSurge
	}
	if first.WithoutRoom && !o.Deadline.IsZero() {
		o.first = first
		p.postponed = append(p.postponed, o)
		return Action{}
	}
	return p.inTurn(o, first)
}

// withoutRoom returns the first action of a move whose replacement may wait for a new node, or
// a Stay. full explains why no node has room. A zero Action means that a later round searches for
// room.
func (p *planner) withoutRoom(o *observation, first Action, requires decision.AssignedCapacity, full string) Action {
	first.WithoutRoom = true
	examined, surge, urgent := full != simulation.NotExamined, first.Kind == Release, !o.Deadline.IsZero()
	// A pod that can run nowhere else serves until its last moment. A surge does not end that.
	mayWait := urgent && (surge || !o.Unconfirmed && len(o.budgets) > 0 && p.feasibility().FitsOtherNode(o.Pod, requires))
	full = "nothing has room for a replacement: " + full
	switch {
	case mayWait && !examined:
		// Other pods may make the search too long in every round. The scheduler finds the room if
		// it exists.
		first.Why = "no time was left to look for room for a replacement"
	case !examined:
		return Action{}
	case mayWait:
		// The earlier the replacement is pending, the earlier an autoscaler adds a node for it.
		first.Why = full + "; it waits for a new node"
	case o.Unconfirmed:
		return o.action(Stay, "", "the breaker is open, and "+full)
	case urgent:
		return o.action(Stay, "", full+"; it runs until "+p.lastMoment(o).UTC().Format(time.RFC3339))
	case surge && !p.feasibility().FitsNewNode(o.Pod, requires):
		return o.action(Stay, "", full+"; no node that an autoscaler may add could run it")
	case surge && requires != decision.Unassigned:
		first.Why = fmt.Sprintf("%s; it requires %s, so that an autoscaler adds a node", full, requires)
	case surge && (o.Reason == Drain || o.Reason == Requested) && slices.Contains(p.settings.ProvisionFor, o.Reason):
		first.Why = full + "; an autoscaler may add a node"
	default:
		return o.action(Stay, "", full)
	}
	return first
}

// inTurn returns the first action of a move, unless this is an eviction that comes too early. Such
// a pod waits until another replica serves, or until its last moment. Without a deadline it has no
// last moment; then only interruptions and requested evictions do not wait for a remaining replica.
//
// Replicas that no PodDisruptionBudget protects are evicted one after the other: the next one when
// all others serve. If replacements start too slowly for that, spreadMoment decides.
func (p *planner) inTurn(o *observation, first Action) Action {
	if first.Kind != EvictPod || o.Pod.OwnWorkload() == nil {
		return first
	}
	missing, replicas := o.missingWithout(), o.replicas()
	wait := o.OnlySurge
	switch {
	case o.Unconfirmed: // a fair end: as with maxUnavailable 1
		wait = !o.mayGetTurn() || missing > 1 || len(o.budgets) == 1 && o.budgets[0].allowed <= 0
	case o.Deadline.IsZero() && o.Reason != Interruption:
		wait = wait || o.Reason != Requested && replicas > 1 && o.serves && !o.safeWithout()
	case replicas == 1 || !o.serves:
	case len(o.budgets) == 0 && missing > 1 && o.Pod.OwnWorkload().Kind != "Job": // the pods of a Job do not replace each other
		wait = wait || o.Deadline.IsZero() || p.now.Before(p.spreadMoment(o))
	default:
		wait = wait || o.spread && missing >= replicas
	}
	if wait {
		return Action{}
	}
	return first
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
	for _, o := range p.postponed {
		waited, half := p.now.Sub(o.began()), o.Deadline.Sub(o.began())/2
		if o.Unconfirmed && p.roomPromised && waited < half {
			continue // its replacement would get the room of a pod that cannot surge
		}
		if !p.replacementPending || waited >= min(half, maxPostponed) {
			p.add(o, func(o *observation) Action { return p.inTurn(o, o.first) })
		}
	}
}
