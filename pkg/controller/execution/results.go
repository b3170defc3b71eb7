package execution

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Observe finds the results of actions in s. It returns the actions whose results s does not show
// yet. Call it with every snapshot, before Plan.
func (e *Executor) Observe(s *snapshot.Snapshot) migration.Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNodes(s)
	e.observeOverdue(s)
	e.departures.Expire(s)
	if len(e.pods) == 0 {
		return nil
	}
	seen := make(map[types.UID]*snapshot.Pod, len(e.pods))
	for _, pod := range s.Pods {
		if _, ok := e.pods[pod.UID]; ok {
			seen[pod.UID] = pod
		}
	}
	progress := migration.Progress{}
	for uid, w := range e.pods {
		e.observe(w, seen[uid])
		switch {
		case w.state == requesting || w.state == unconfirmed:
			progress[uid] = migration.PodProgress{InFlight: w.action.Kind}
		case seen[uid] == nil:
			delete(e.pods, uid)
		default:
			known := migration.PodProgress{Unreleasable: e.clock.Since(w.denied) < deniedPause, Refused: w.refused}
			if known != (migration.PodProgress{}) {
				progress[uid] = known
			}
		}
	}
	return progress
}

// observe compares the last action with the pod in the caches; nil means that the pod is gone.
func (e *Executor) observe(w *work, pod *snapshot.Pod) {
	if w.state == idle && w.action.Kind == migration.Release && w.action.Reason == migration.Drain &&
		(pod == nil || pod.DeletionTimestamp != nil) {
		e.countMove(w.action) // the draining client evicted the pod
		w.action = migration.Action{}
	}
	switch removes := w.action.Kind == migration.EvictPod || w.action.Kind == migration.DeletePod; {
	case w.state != unconfirmed && (w.state != terminating || pod != nil):
	case pod == nil:
		if removes {
			e.countMove(w.action)
		}
		w.enter(idle, e.clock.Now())
	case removes && pod.DeletionTimestamp != nil:
		w.enter(terminating, e.clock.Now())
	case w.action.Kind == migration.Restore && !migration.Released(pod) && !workload.ControlledByDeployment(pod.Pod):
		e.countMove(w.action)
		w.enter(idle, e.clock.Now())
	case w.action.Kind == migration.Release && pod.Release != nil,
		w.action.Kind == migration.Forget && pod.Release == nil,
		e.clock.Since(w.since) >= confirmTimeout:
		w.enter(idle, e.clock.Now())
	}
}

type interruptedNode struct {
	node *snapshot.Node
	// since is when this process first saw the signal.
	since time.Time
	// occupied reports whether pods that must be moved are still on the node, and silent whether
	// its kubelet is silent.
	occupied, silent bool
}

// observeNodes measures how long nodes take to become empty. It also counts the pods that were on a
// node when it vanished.
func (e *Executor) observeNodes(s *snapshot.Snapshot) {
	now, vanished := e.clock.Now(), e.nodes
	e.nodes = map[types.UID]*interruptedNode{}
	for _, node := range s.Nodes {
		i := vanished[node.UID]
		delete(vanished, node.UID)
		if node.Facts.Signal != decision.Reclaim {
			continue
		}
		if i == nil {
			i = &interruptedNode{since: now}
		}
		occupied := slices.ContainsFunc(node.Pods, func(pod *snapshot.Pod) bool { return workload.PolicyApplies(pod.Pod) })
		if i.occupied && !occupied {
			evacuationDuration.Observe(now.Sub(i.since).Seconds())
		}
		e.nodes[node.UID], i.node, i.occupied = i, node, occupied
		_, i.silent = s.Overdue[node.Name]
	}
	for _, i := range vanished {
		var lost []*snapshot.Pod
		for _, pod := range s.Pods {
			ending := pod.DeletionTimestamp != nil // its replacement exists or is being created
			if pod.Node == nil && pod.Spec.NodeName == i.node.Name && !ending && workload.PolicyApplies(pod.Pod) {
				lost = append(lost, pod)
			}
		}
		if len(lost) > 0 {
			e.recordLost(i, lost)
		} else if i.occupied {
			evacuationDuration.Observe(now.Sub(i.since).Seconds())
		}
	}
}

// observeOverdue reports, once each, moved pods that are still terminating. They no longer count as
// moves in flight.
func (e *Executor) observeOverdue(s *snapshot.Snapshot) {
	if e.settings.DryRun {
		return
	}
	for _, pod := range s.Pods {
		if !pod.Overdue(s.Now) {
			continue
		}
		w := e.pods[pod.UID]
		if w == nil && pod.Release != nil { // released and removed by an earlier controller
			w = e.workFor(pod)
		}
		if w == nil || pod.Release == nil && w.action.Kind != migration.EvictPod && w.action.Kind != migration.DeletePod ||
			!w.firstReport("overdue") {
			continue
		}
		podsOverdue.Inc()
		e.recorder.Eventf(pod.Pod, nil, v1.EventTypeWarning, spot.ReasonOverdue, "Observe",
			"Moved, but still terminating a minute after its grace period; other moves do not wait for it")
	}
}
