package migration

import (
	"fmt"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// On a node that a user or a tool drains, the controller only releases pods, so that their
// replacements start first. The draining client evicts the pods: it retries evictions that a
// PodDisruptionBudget refused. Once the replacement is ready, the PodDisruptionBudget allows the
// eviction of the released pod.

// replacementFirst reports whether a pod on a draining node needs a replacement before its
// eviction. That is so if its PodDisruptionBudget currently allows no eviction, or if no other
// replica of its workload is ready. It is false if several PodDisruptionBudgets select the pod,
// because the API server never evicts such a pod, with or without a replacement.
func (p *planner) replacementFirst(pod *snapshot.Pod) bool {
	budgets := p.budgets.selecting(pod)
	if len(budgets) > 1 || !p.serves(pod) {
		return false
	}
	if len(budgets) == 1 && budgets[0].allowed <= 0 {
		return true
	}
	p.countServing()
	return p.serving[group(pod)] == 1
}

// buys reports whether an autoscaler adds a node for a replacement without room, because the
// affinity of the replacement shows what it needs.
func (p *planner) buys(m Move, requires decision.AssignedCapacity) bool {
	return requires != decision.Unassigned || (m.Reason == Drain || m.Reason == Requested) && slices.Contains(p.settings.Buying, m.Reason)
}

// The controller restores a pod that was released for a drain if the pod is not evicted within
// evictedWithin. If its replacement may take longer, the pod waits for evictedAtLeast after that
// time. kubectl drain retries every 5 s and Karpenter every 10 s, so a longer wait without an
// eviction means that the node is only cordoned.
const evictedWithin, evictedAtLeast = 10 * time.Minute, time.Minute

// awaitDrain adds the next step of a pod that was released because its node is being drained.
// surplus reports whether its replacement is ready.
func (p *planner) awaitDrain(a Action, surplus bool) {
	within, waited := p.patience(a.Pod.ReleasedFrom, Drain), p.now.Sub(a.Pod.Release.At)
	evicted := max(evictedWithin, within+evictedAtLeast)
	switch {
	case p.moves[a.Pod.UID].Reason != Drain:
		a.Kind, a.Why = Restore, "its node is no longer being drained"
	case !surplus && waited >= within:
		a.Kind, a.Why = Restore, fmt.Sprintf("no replacement was ready after %s", within)
	case waited >= evicted:
		a.Kind, a.Why = Restore, fmt.Sprintf("it was not evicted within %s", evicted)
	default:
		return
	}
	p.add(a)
}
