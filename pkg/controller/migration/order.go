package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// inStartOrder returns the moves that may start, in the order in which they reserve room. Moves
// with a deadline are first, sorted by the share of its pods that a workload would lose (largest
// first), then by deadline, namespace and name. Among workloads that would lose the same share,
// each first move precedes every second move. Scarce room thus saves something for many workloads
// rather than everything for a few. Unconfirmed moves that keep a PodDisruptionBudget or a floor
// come first (needOf). Other moves are sorted by namespace and name, and the namespaces take turns,
// because the time for the search may end.
func inStartOrder(observed []*observation) []*observation {
	all := slices.DeleteFunc(slices.Clone(observed), func(o *observation) bool { return !o.startable })
	slices.SortFunc(all, func(a, b *observation) int { return ByDeadline(a.Move, b.Move) })
	loss := map[*siblings]int{}
	for _, o := range all {
		if !o.Deadline.IsZero() {
			loss[o.siblings]++
		}
	}
	for _, o := range all {
		o.lost = loss[o.siblings]
		loss[o.siblings]--
	}
	pods := func(o *observation) int { return max(o.lost, o.live) }
	slices.SortStableFunc(all, func(a, b *observation) int {
		if a.Deadline.IsZero() || b.Deadline.IsZero() {
			return ByDeadline(a.Move, b.Move)
		}
		return cmp.Compare(b.lost*pods(a), a.lost*pods(b))
	})
	seen := map[*siblings]int{}
	for _, o := range all {
		if o.need = 3; o.Unconfirmed {
			o.need = o.needOf(seen[o.siblings])
		} else if !o.Deadline.IsZero() {
			o.need = 0
		}
		seen[o.siblings]++
	}
	slices.SortStableFunc(all, func(a, b *observation) int { return a.need - b.need })
	if i := slices.IndexFunc(all, func(o *observation) bool { return o.Deadline.IsZero() }); i >= 0 {
		turns.RoundRobin(all[i:], 1, func(o *observation) string { return o.Pod.Namespace })
	}
	return all
}

// needOf returns how urgently the workload of an unconfirmed pod needs a replacement on a node that
// remains, if it already gets n replacements: 0 if the loss would break its PodDisruptionBudget, 1
// if it would break its floor, else 2.
func (o *observation) needOf(n int) int {
	w := o.Pod.OwnWorkload()
	switch n += o.safe; {
	case slices.ContainsFunc(o.budgets, func(b *budget) bool { return n < int(b.Status.DesiredHealthy) }):
		return 0
	case w != nil && n < w.Floor:
		return 1
	}
	return 2
}

// ByDeadline orders moves by deadline, those without one last, then by namespace and name of the
// pod.
func ByDeadline(a, b Move) int {
	return cmp.Or(compareDeadlines(a.Deadline, b.Deadline), snapshot.ByName(a.Pod.Pod, b.Pod.Pod))
}

// compareDeadlines orders deadlines, the earliest first. Zero means never.
func compareDeadlines(a, b time.Time) int {
	return cmp.Or(snapshot.TrueFirst(!a.IsZero(), !b.IsZero()), a.Compare(b))
}

// laterPerTurn is how many later actions of a namespace are grouped.
const laterPerTurn = 10

// inOrder sorts planned actions in the order of execution: deletions, then actions with a deadline
// (pods that wait for a new node last), then the rest. Within each rank the first action of each
// workload comes first, in the given order, and the namespaces take turns. The other actions
// follow, sorted by deadline and grouped by workload. Kubernetes controllers then sync a workload
// once for several pods, and in a mass reclaim these syncs are much of their work. Here too the
// namespaces take turns, with laterPerTurn actions each.
func inOrder(actions []Action) []Action {
	type position struct {
		Action
		later, workload int
	}
	positions := make([]position, len(actions))
	first := map[workload.OwnerKey]int{}
	for i, a := range actions {
		positions[i] = position{Action: a, workload: i}
		if at, seen := first[workloadKey(a.Pod)]; seen {
			positions[i].later, positions[i].workload = 1, at
		} else {
			first[workloadKey(a.Pod)] = i
		}
	}
	byDeadline := func(a, b position) int {
		if order := a.later - b.later; order != 0 || a.later == 0 {
			return order
		}
		return compareDeadlines(a.Deadline, b.Deadline)
	}
	namespace := func(p position) string { return p.Pod.Namespace }
	slices.SortStableFunc(positions, func(a, b position) int { return cmp.Or(byDeadline(a, b), a.workload-b.workload) })
	turns.RoundRobin(positions[:len(first)], 1, namespace)
	turns.RoundRobin(positions[len(first):], laterPerTurn, namespace)
	slices.SortStableFunc(positions, func(a, b position) int { return cmp.Or(a.rank()-b.rank(), byDeadline(a, b)) })
	for i := range positions {
		actions[i] = positions[i].Action
	}
	return actions
}

// rank orders actions by urgency. Actions that will probably be refused must not delay others.
func (a *Action) rank() int {
	switch {
	case a.Kind == DeletePod:
		return 0
	case a.LikelyRefused:
		return 4
	case a.WithoutRoom && !a.Deadline.IsZero():
		return 2
	case !a.Deadline.IsZero():
		return 1
	}
	return 3
}
