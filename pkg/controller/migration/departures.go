package migration

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Departures are the moves of the last departureWindow, by workload and node.
type Departures map[departureKey]departure

// departureKey identifies a workload and an incarnation of a node.
type departureKey struct {
	workload workload.OwnerKey
	node     types.UID
}

type departure struct {
	// starts are the times at which moves started, the oldest first.
	starts []time.Time
	// present are the pods of the workload that were on the node when the first move because of
	// the node's current signal started. It is nil if there was no such move.
	present map[types.UID]bool
	// cleared is when that signal ended; zero if it has not, or if this is unknown.
	cleared time.Time
}

const (
	// departureWindow is the time in which the moves of a workload off one node are limited to
	// twice its replicas, or twice departureReplicas if it has fewer. So a cause that no other rule
	// recognizes, such as a signal that is set and cleared, cannot move pods for ever.
	departureWindow   = time.Hour
	departureReplicas = 5
	// lateArrival is how long after the notice of its node a pod may have been created by a
	// controller, or bound by a scheduler, that did not know of the notice yet.
	lateArrival = 10 * time.Second
)

func keyOfDeparture(pod *snapshot.Pod) departureKey {
	return departureKey{workloadKey(pod), pod.Node.UID}
}

// starts reports whether the action starts the move of a pod off its node.
func (a *Action) starts() bool {
	return a.Pod.Node != nil && a.Pod.Release == nil && (a.Kind == Release || a.Kind == EvictPod || a.Kind == DeletePod)
}

// Record adds the start of a move that the API server has performed. Other actions start no move.
func (d Departures) Record(a Action, now time.Time) {
	if !a.starts() {
		return
	}
	key := keyOfDeparture(a.Pod)
	of := d[key]
	of.starts = append(of.starts, now)
	if of.present == nil && !a.Pod.Node.Remains() {
		of.present, of.cleared = map[types.UID]bool{}, time.Time{}
		for _, pod := range a.Pod.Node.Pods {
			if workloadKey(pod) == key.workload {
				of.present[pod.UID] = true
			}
		}
	}
	d[key] = of
}

// Expire removes what no longer counts in s. A node whose signals are cleared starts anew, except
// for the number of moves and the time at which they were cleared.
func (d Departures) Expire(s *snapshot.Snapshot) {
	if len(d) == 0 {
		return
	}
	nodes := make(map[types.UID]*snapshot.Node, len(s.Nodes))
	for _, node := range s.Nodes {
		nodes[node.UID] = node
	}
	for key, of := range d {
		node := nodes[key.node]
		if node.Remains() {
			if of.present != nil {
				of.cleared = s.Now
			}
			of.present = nil
		}
		of.starts = slices.DeleteFunc(of.starts, func(at time.Time) bool { return s.Now.Sub(at) >= departureWindow })
		if d[key] = of; node == nil || len(of.starts) == 0 && of.present == nil && s.Now.Sub(of.cleared) >= departureWindow {
			delete(d, key)
		}
	}
}

// sinceCleared returns for how long the node has had no signal since the first move because of one;
// the longest Duration if this is unknown. It is 0 while the taint of the controller is still on
// the node, which keeps replacements off it.
func (of departure) sinceCleared(node *snapshot.Node, now time.Time) time.Duration {
	if of.present != nil && node.Facts.Signal == decision.Reclaim {
		return 0
	}
	return now.Sub(of.cleared)
}

// obstacle explains why a move would not help, or would be repeated for ever; "" if nothing is
// known. The pod then stays until its last moment. last reports whether that is reached.
func (p *planner) obstacle(o *observation, last bool) string {
	limit := 2 * max(departureReplicas, o.desired)
	switch {
	case o.Useless != "":
		return o.Useless
	case p.starting[keyOfDeparture(o.Pod)]+o.departed >= limit:
		return fmt.Sprintf("%d moves of its workload off this node have started in the last hour", limit)
	case last:
		return ""
	}
	return o.returns
}

// whyReturns explains why a successor of the pod would be placed on its node again; "" if nothing
// is known.
func (of departure) whyReturns(o *observation) string {
	switch {
	case o.Pod.SuccessorNode() == o.Pod.Node.Name:
		return "the template of its owner names this node"
	case of.returned(o):
		return "a replacement of a pod that had to leave this node was placed here again"
	}
	return ""
}

// returned reports whether the pod was placed on a node that its workload had to leave before. This
// is known from the moves of this process; else from a released pod that is still on the node; else
// from the time of the notice.
func (of departure) returned(o *observation) bool {
	if of.present != nil {
		return !of.present[o.Pod.UID]
	}
	if o.Reason != Advisory && o.Pod.Node.Remains() {
		return false
	}
	created := o.Pod.CreationTimestamp.Time
	return !o.Noticed.IsZero() && created.Sub(o.Noticed) >= lateArrival ||
		slices.ContainsFunc(o.Pod.Node.Pods, func(other *snapshot.Pod) bool {
			// Times of creation are in whole seconds.
			return other.Release != nil && workloadKey(other) == workloadKey(o.Pod) && !created.Before(other.Release.At.Truncate(time.Second))
		})
}
