package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// urgent is a move with what its workload stands to lose.
type urgent struct {
	Move
	// lost of left pods go unless something is done, those of the same workload that come first already saved.
	lost, left int
}

// urgency returns the moves that may be begun, in the order in which they take the room there is: those with a deadline first, of them the
// workload first that would lose most of what it has left, then the earlier deadline, namespace and name. Each workload's first move comes
// before the second of one that stands to lose as much, so that scarce room saves something of many before all of a few.
func (p *planner) urgency() []urgent {
	var all []urgent
	for _, m := range p.moves {
		if pod := m.Pod; movable(pod) && !p.begun(pod) {
			all = append(all, urgent{Move: m})
		}
	}
	slices.SortFunc(all, func(a, b urgent) int { return byDeadline(a.Move, b.Move) })
	lost := map[kube.OwnerKey]int{}
	for i := range all {
		if !all[i].Deadline.IsZero() {
			lost[group(all[i].Pod)]++
		}
	}
	for i := range all {
		g := group(all[i].Pod)
		all[i].lost, all[i].left = lost[g], max(lost[g], left(all[i].Pod))
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

// inTurn orders planned actions as they are to be done: what cannot wait first, then what has a deadline, of that last what waits for a
// new node, then the rest. Of these the first of each workload comes before the second of any, in the given order, and the others of a workload come together, those with an earlier
// deadline first: the controllers of Kubernetes look at a workload once for several pods then, which in a mass reclaim is much of what they
// do.
func inTurn(actions []Action) []Action {
	type turn struct {
		Action
		later, workload int
	}
	turns := make([]turn, len(actions))
	first := map[kube.OwnerKey]int{}
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

// rank orders actions by whether they can wait. What will probably be refused must not hold up anything else.
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

// begun reports whether something is under way for the pod, or was done that the caches do not show yet.
func (p *planner) begun(pod *cluster.Pod) bool {
	kind, ok := p.progress[pod.UID]
	return ok && kind != Unreleasable
}

// group returns the key of what the pod is lost to: its workload, as far as that is known.
func group(pod *cluster.Pod) kube.OwnerKey {
	switch {
	case pod.Workload != nil:
		return pod.Workload.Key
	case pod.ReleasedFrom != nil:
		return pod.ReleasedFrom.Workload.Key
	}
	return kube.RevisionOf(pod.Pod)
}

// left counts the pods that the pod's workload has. One that is not known is taken to have none but those that go.
func left(pod *cluster.Pod) int {
	n := 0
	if pod.Workload != nil {
		for _, r := range pod.Workload.Revisions {
			n += len(r.Pods)
		}
	}
	return n
}

// byDeadline orders moves by deadline, those without one last, then by the pod's namespace and name.
func byDeadline(a, b Move) int {
	return cmp.Or(CompareDeadlines(a.Deadline, b.Deadline), byName(a.Pod, b.Pod))
}

// CompareDeadlines orders deadlines, of which zero means never: the earliest first.
func CompareDeadlines(a, b time.Time) int {
	switch {
	case sooner(a, b):
		return -1
	case sooner(b, a):
		return 1
	}
	return 0
}

func byName(a, b *cluster.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
