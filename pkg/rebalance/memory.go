package rebalance

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

const (
	// firstBackOff is how long a workload is left alone after a move that improved nothing. It doubles each time, lastBackOff at most: what
	// hinders it may go away.
	firstBackOff, lastBackOff = time.Minute, time.Hour
	// patience is how long a move may be named without anything happening to the pod (a budget forbids it, or others were more urgent)
	// before it counts as one that improved nothing: it keeps others from being made.
	patience = 5 * time.Minute
)

// memory is what a planner remembers from round to round.
type memory struct {
	// since is when the first round was.
	since time.Time
	// attempts are the last moves whose outcome is open, by workload.
	attempts map[kube.OwnerKey]*attempt
	// backOffs are by workload.
	backOffs map[kube.OwnerKey]backOff
	// interrupted is when a workload last had a pod on a node that was being reclaimed.
	interrupted map[kube.OwnerKey]time.Time
	// unrest is when a spot pool last lost a node, or had one that is being reclaimed.
	unrest map[decision.Pool]time.Time
	// toSpot is when a workload last moved to a pool that had not been calm for long.
	toSpot map[kube.OwnerKey]time.Time
	// lacking is since when a workload has had replicas that do not run.
	lacking map[kube.OwnerKey]time.Time
	// nodes are those of the last round.
	nodes map[types.UID]*seenNode
}

// attempt is a move whose outcome is open.
type attempt struct {
	pod      types.UID
	reason   migration.Reason
	begun    time.Time
	released bool      // has been seen so
	gone     time.Time // when the pod was first seen to be; zero: not yet
	before   int       // what the workload lacked when it began
	lacking  int       // how many of its replicas did not run then
}

type backOff struct {
	until time.Time
	wait  time.Duration
}

func newMemory() memory {
	return memory{
		attempts: map[kube.OwnerKey]*attempt{}, backOffs: map[kube.OwnerKey]backOff{}, interrupted: map[kube.OwnerKey]time.Time{},
		unrest: map[decision.Pool]time.Time{}, toSpot: map[kube.OwnerKey]time.Time{},
		lacking: map[kube.OwnerKey]time.Time{},
	}
}

// seenNode is a node of the last round.
type seenNode struct {
	*cluster.Node
	loss kube.NodeLoss
}

// observe records which spot pools lost nodes and which workloads had pods on nodes that are reclaimed. What an autoscaler removes is no loss.
func (m *memory) observe(s *cluster.Snapshot) {
	last := m.nodes
	m.nodes = make(map[types.UID]*seenNode, len(s.Nodes))
	for _, n := range s.Nodes {
		seen := last[n.UID]
		if seen == nil {
			seen = &seenNode{}
		}
		delete(last, n.UID)
		seen.Node = n
		m.nodes[n.UID] = seen
	}
	for _, event := range s.NodeEvents {
		if seen := m.nodes[event.UID]; seen != nil {
			seen.loss.Note(event)
		} else if seen := last[event.UID]; seen != nil {
			seen.loss.Note(event)
		}
	}
	for _, n := range s.Nodes {
		seen := m.nodes[n.UID]
		seen.loss.See(n.Disruption, slices.ContainsFunc(n.Pods, func(p *cluster.Pod) bool { return kube.Occupies(p.Pod, n.Node) }), s.Now)
		if !m.lost(seen, s.Now) && n.Facts.Signal == decision.Reclaim && !kube.Advised(n.Node) {
			m.interrupt(n, s.Now) // maintenance, or an on-demand node: the controller empties it too
		}
	}
	for _, seen := range last { // those that vanished
		seen.loss.Vanish(s.Now)
		m.lost(seen, s.Now)
	}
}

// lost records that a node was lost, and reports whether it was.
func (m *memory) lost(seen *seenNode, now time.Time) bool {
	if !seen.loss.Lost() || seen.Facts.Capacity.Type != decision.Spot {
		return false
	}
	m.unrest[seen.Facts.Pool] = now
	m.interrupt(seen.Node, now)
	return true
}

// interrupt records an interruption of the workloads that have pods on n.
func (m *memory) interrupt(n *cluster.Node, now time.Time) {
	for _, p := range n.Pods {
		if p.Workload != nil {
			m.interrupted[p.Workload.Key] = now
		}
	}
}

// rests reports whether a workload is to be left alone.
func (m *memory) rests(workload kube.OwnerKey, now time.Time, pause time.Duration) bool {
	struck, ok := m.interrupted[workload]
	return ok && now.Before(struck.Add(pause)) || now.Before(m.backOffs[workload].until)
}

// follow finds out what became of the moves, and returns how many are under way: their pods are on their way out, or are gone and their workloads
// not settled yet. A move has ended when its workload is settled; then it either has improved what it was to improve, or its workload is left
// alone for a while. A replacement that does not get ready keeps others from moving no longer than patience, and a pod that does not end no
// longer than until it lingers.
//
// A pod that was released by an earlier controller counts as well, but only if it was released from a workload that exists, and one for each
// workload, because a workload has one move at a time: no number of pods that claim to have been released uses up the moves of all others.
func (m *memory) follow(r *round) (underWay int) {
	pods := map[types.UID]*cluster.Pod{}
	attempted, releases := map[types.UID]bool{}, map[kube.OwnerKey]bool{}
	for _, a := range m.attempts {
		attempted[a.pod] = true
	}
	for _, p := range r.snapshot.Pods {
		if attempted[p.UID] {
			pods[p.UID] = p
		}
		switch {
		case r.lingers(p):
		case p.ReleasedFrom != nil && rebalancing(p.Release.Reason):
			releases[p.ReleasedFrom.Workload.Key] = true
		case p.DeletionTimestamp != nil && attempted[p.UID]:
			underWay++
		}
	}
	underWay += len(releases)
	for _, w := range r.snapshot.Workloads {
		if a := m.attempts[w.Key]; a != nil && m.unsettled(r, w, a, pods[a.pod]) {
			underWay++
		}
	}
	return underWay
}

// longestMove is how long a pod that is on its way out may keep other workloads from moving. How long
// it stays is up to who writes it: by minReadySeconds, a budget or its grace period.
const longestMove = time.Hour

// lingers reports whether a pod that is on its way out is not expected to be gone soon: it is
// overdue, was released longestMove ago, or has more than that left of its grace period.
func (r *round) lingers(p *cluster.Pod) bool {
	return p.Overdue(r.now) || p.Release != nil && r.now.Sub(p.Release.At) >= longestMove ||
		p.DeletionTimestamp != nil && p.DeletionTimestamp.Sub(r.now) > longestMove
}

// unsettled reports whether the pod of an attempt, which is nil then, is gone and its workload is not settled yet. It takes note of how the
// attempt ended.
func (m *memory) unsettled(r *round, w *cluster.Workload, a *attempt, pod *cluster.Pod) bool {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	switch {
	case pod != nil && pod.Release != nil:
		a.released = true
	case pod != nil && pod.DeletionTimestamp != nil:
	case pod != nil:
		if a.released || r.now.Sub(a.begun) >= patience {
			m.fail(w.Key, r.now)
		}
	case w.RollingOut && !halted(w):
		delete(m.attempts, w.Key) // what there was to improve is being replaced
	case !r.settled(w, a) || r.starting(w):
		if a.gone.IsZero() {
			a.gone = r.now
		}
		return r.now.Sub(a.gone) < patience
	case lacks(w, a.reason) < a.before:
		delete(m.attempts, w.Key)
		delete(m.backOffs, w.Key)
	default:
		m.fail(w.Key, r.now)
	}
	return false
}

// lacks says how far a workload is from what a reason is for, so that less is better. Whether the pod was helped for which it made room is not
// its doing: it has given up what it did not need.
func lacks(w *cluster.Workload, reason migration.Reason) int {
	switch reason {
	case migration.Heal:
		return deficit(w)
	case migration.Assign:
		return unassigned(w)
	}
	return surplus(w)
}

func (m *memory) fail(workload kube.OwnerKey, now time.Time) {
	wait := firstBackOff
	if b, ok := m.backOffs[workload]; ok {
		wait = min(2*b.wait, lastBackOff)
	}
	m.backOffs[workload] = backOff{now.Add(wait), wait}
	delete(m.attempts, workload)
}

// forget drops what has no meaning any more.
func (m *memory) forget(r *round) {
	workloads := map[kube.OwnerKey]bool{}
	for _, w := range r.snapshot.Workloads {
		workloads[w.Key] = true
	}
	live := map[types.UID]bool{}
	for _, p := range r.snapshot.Pods {
		if p.Live() {
			live[p.UID] = true
		}
	}
	for key, a := range m.attempts {
		// A pod that still stands, and is not named any more, has no need to move.
		if !workloads[key] || live[a.pod] && !r.moved[key] {
			delete(m.attempts, key)
		}
	}
	for key, b := range m.backOffs {
		if !workloads[key] || r.now.Sub(b.until) >= lastBackOff {
			delete(m.backOffs, key)
		}
	}
	for key, at := range m.interrupted {
		if r.now.Sub(at) >= r.settings.Pause {
			delete(m.interrupted, key)
		}
	}
	for pool, at := range m.unrest {
		if r.now.Sub(at) >= 2*r.settings.Calm {
			delete(m.unrest, pool)
		}
	}
	for key, at := range m.toSpot {
		if r.now.Sub(at) >= r.settings.Calm {
			delete(m.toSpot, key)
		}
	}
}

// rebalancing reports whether a released pod was released by a move of this package.
func rebalancing(reason string) bool {
	return slices.Contains([]migration.Reason{migration.Heal, migration.Assign, migration.MakeRoom, migration.ReturnToSpot}, migration.Reason(reason))
}
