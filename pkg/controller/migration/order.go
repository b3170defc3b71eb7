package migration

import (
	"cmp"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// inOrder sorts planned actions in the order of execution: deletions, then actions with a deadline
// (pods that wait for a new node last), then the rest. Within each rank the first action of each
// workload comes first, in the given order. The other actions follow, grouped by workload, those
// with an earlier deadline first. Kubernetes controllers then sync a workload once for several
// pods, and in a mass reclaim these syncs are much of their work.
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
	slices.SortStableFunc(positions, func(a, b position) int {
		if order := cmp.Or(a.rank()-b.rank(), a.later-b.later); order != 0 || a.later == 0 {
			return order
		}
		return cmp.Or(compareDeadlines(a.Deadline, b.Deadline), a.workload-b.workload)
	})
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
