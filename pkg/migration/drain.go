package migration

import (
	"fmt"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// On a node that somebody else drains, pods are released so that their replacements start before they are evicted. Whoever drains the node
// evicts them: it tries again what a budget refused, and a released pod with a ready replacement is one that the budget can spare.

// heldUp reports whether a pod on a node that is drained needs a replacement first: a PodDisruptionBudget allows no eviction of it now, or no
// other replica of its workload is ready. The API server evicts no pod that several budgets select, whether it has a replacement or not.
func (p *planner) heldUp(pod *cluster.Pod) bool {
	budgets := p.budgets.selecting(pod)
	if len(budgets) > 1 || !p.serves(pod) {
		return false
	}
	if len(budgets) == 1 && budgets[0].left <= 0 {
		return true
	}
	p.countServing()
	return p.serving[group(pod)] == 1
}

// buys reports whether an autoscaler adds a node for a replacement that nothing has room for: its own affinity shows what it needs.
func (p *planner) buys(m Move, requires decision.Assignment) bool {
	return requires != decision.Unassigned || (m.Reason == Drain || m.Reason == Requested) && slices.Contains(p.settings.Buying, m.Reason)
}

// A pod that was released for a drain returns if it was not evicted within evictedWithin. If its
// replacement may take longer, the pod waits for evictedAtLeast after that time. kubectl drain
// retries every 5 s and Karpenter every 10 s, so without an eviction the node is only cordoned.
const evictedWithin, evictedAtLeast = 10 * time.Minute, time.Minute

// awaitDrain adds the step of a pod that was released because its node is drained. surplus: its replacement is ready.
func (p *planner) awaitDrain(a Action, surplus bool) {
	within, waited := p.patience(a.Pod.ReleasedFrom, Drain), p.now.Sub(a.Pod.Release.At)
	evicted := max(evictedWithin, within+evictedAtLeast)
	switch {
	case p.moves[a.Pod.UID].Reason != Drain:
		a.Kind, a.Why = Restore, "its node is not drained any more"
	case !surplus && waited >= within:
		a.Kind, a.Why = Restore, fmt.Sprintf("no replacement was ready after %s", within)
	case waited >= evicted:
		a.Kind, a.Why = Restore, fmt.Sprintf("it was not evicted within %s", evicted)
	default:
		return
	}
	p.add(a)
}
