package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// urgent is a move with what its workload may lose.
type urgent struct {
	Move
	// Without moves, the workload loses `lost` of `left` pods. More urgent moves of the same
	// workload count as completed.
	lost, left int
}

// urgency returns the moves that may start, in the order in which they reserve room. Moves with a
// deadline are first, sorted by the share of its pods that a workload would lose (largest first),
// then by deadline, namespace and name. Among workloads that would lose the same share, each first
// move precedes every second move. Scarce room thus saves something for many workloads rather than
// everything for a few.
func (p *planner) urgency() []urgent {
	var all []urgent
	for _, m := range p.moves {
		if pod := m.Pod; movable(pod) && !p.inFlight(pod) {
			all = append(all, urgent{Move: m})
		}
	}
	slices.SortFunc(all, func(a, b urgent) int { return byDeadline(a.Move, b.Move) })
	lost := map[workload.OwnerKey]int{}
	for i := range all {
		if !all[i].Deadline.IsZero() {
			lost[group(all[i].Pod)]++
		}
	}
	for i := range all {
		g := group(all[i].Pod)
		all[i].lost, all[i].left = lost[g], max(lost[g], replicasOf(all[i].Pod))
		lost[g]--
	}
	slices.SortStableFunc(all, func(a, b urgent) int {
		if a.Deadline.IsZero() || b.Deadline.IsZero() {
			return byDeadline(a.Move, b.Move)
		}
		return cmp.Compare(b.lost*a.left, a.lost*b.left)
	})
	return all
}

// inOrder sorts planned actions in the order of execution: deletions, then actions with a deadline
// (pods that wait for a new node last), then the rest. Within each rank the first action of each
// workload comes first, in the given order. The other actions follow, grouped by workload, those
// with an earlier deadline first. Kubernetes controllers then sync a workload once for several
// pods, and in a mass reclaim these syncs are much of their work.
func inOrder(actions []Action) []Action {
	type turn struct {
		Action
		later, workload int
	}
	turns := make([]turn, len(actions))
	first := map[workload.OwnerKey]int{}
	for i, a := range actions {
		turns[i] = turn{Action: a, workload: i}
		if at, seen := first[group(a.Pod)]; seen {
			turns[i].later, turns[i].workload = 1, at
		} else {
			first[group(a.Pod)] = i
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int {
		if order := cmp.Or(a.rank()-b.rank(), a.later-b.later); order != 0 || a.later == 0 {
			return order
		}
		return cmp.Or(CompareDeadlines(a.Deadline, b.Deadline), a.workload-b.workload)
	})
	for i := range turns {
		actions[i] = turns[i].Action
	}
	return actions
}

// rank orders actions by urgency. Actions that will probably be refused must not delay others.
func (a *Action) rank() int {
	switch {
	case a.Kind == DeletePod:
		return 0
	case a.Unlikely:
		return 4
	case a.Unplaced && !a.Deadline.IsZero():
		return 2
	case !a.Deadline.IsZero():
		return 1
	}
	return 3
}

// inFlight reports whether an action for the pod is in flight, or was performed and the caches do
// not show it yet.
func (p *planner) inFlight(pod *snapshot.Pod) bool {
	kind, ok := p.progress[pod.UID]
	return ok && kind != Unreleasable
}

// group returns the key of the workload that loses the pod; the key of its revision if the workload
// is unknown.
func group(pod *snapshot.Pod) workload.OwnerKey {
	switch {
	case pod.Workload != nil:
		return pod.Workload.Key
	case pod.ReleasedFrom != nil:
		return pod.ReleasedFrom.Workload.Key
	}
	return workload.RevisionOf(pod.Pod)
}

// replicasOf counts the pods of the pod's workload; 0 if the workload is unknown.
func replicasOf(pod *snapshot.Pod) int {
	n := 0
	if pod.Workload != nil {
		for _, r := range pod.Workload.Revisions {
			n += len(r.Pods)
		}
	}
	return n
}

// byDeadline orders moves by deadline, those without one last, then by namespace and name of the
// pod.
func byDeadline(a, b Move) int {
	return cmp.Or(CompareDeadlines(a.Deadline, b.Deadline), byName(a.Pod, b.Pod))
}

// CompareDeadlines orders deadlines, the earliest first. Zero means never.
func CompareDeadlines(a, b time.Time) int {
	switch {
	case sooner(a, b):
		return -1
	case sooner(b, a):
		return 1
	}
	return 0
}

func byName(a, b *snapshot.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
