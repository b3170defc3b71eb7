package rebalance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// A workload is not moved for minBackOff after a move that improved nothing, or for
	// evictBackOff if the move evicted its pod first, because that costs a replica. The obstacle
	// may be one that Room does not know, such as a filter of the user's scheduler. The back-off
	// doubles with each failure, up to maxBackOff, because the obstacle may disappear. It also ends
	// if the template of the workload changes. No change of a node ends it: in many clusters a node
	// changes every minute.
	minBackOff, evictBackOff, maxBackOff = time.Minute, time.Hour, 24 * time.Hour
	// shortBackOff limits the back-off of moves that cost no replica, and of moves for which an
	// autoscaler has to add a node: a cloud may have nodes again without notice.
	shortBackOff = time.Hour
	// moveTimeout is the time for which a move may be planned without a change to the pod. A
	// PodDisruptionBudget may forbid the change, or other moves may be more urgent. After this
	// time it counts as a failed move, so that it does not block other moves.
	moveTimeout = 5 * time.Minute
)

// memory is the state that a planner keeps between rounds.
type memory struct {
	passedOn
	// certain contains the Interrupted and Disrupted of losses that cannot be withdrawn
	// (node.LossDetector).
	certain    passedOn
	firstRound time.Time
	// attempts has the latest move of each workload with an open outcome.
	attempts map[workload.OwnerKey]*attempt
	// unavailableSince is the time since which a workload has had replicas that do not run.
	unavailableSince map[workload.OwnerKey]time.Time
	nodes            map[types.UID]*seenNode
}

// passedOn is the part of the memory that a planner passes on to later leaders.
type passedOn struct {
	BackOffs map[workload.OwnerKey]backOff
	// Interrupted is the time at which a workload last had a pod on a node that was being
	// reclaimed.
	Interrupted map[workload.OwnerKey]time.Time
	// Disrupted is the time at which a spot pool last lost a node or had a node that is being
	// reclaimed.
	Disrupted map[decision.Pool]time.Time
	// EarlyMoves is the time at which a workload last moved to a pool that had not been calm for
	// two calm periods.
	EarlyMoves map[workload.OwnerKey]time.Time
}

// load adds what the last leader passed on.
func (m *memory) load(from *leader.Memory) {
	var last passedOn
	from.Load(&last)
	maps.Copy(m.BackOffs, last.BackOffs)
	maps.Copy(m.Interrupted, last.Interrupted)
	maps.Copy(m.Disrupted, last.Disrupted)
	maps.Copy(m.EarlyMoves, last.EarlyMoves)
	m.certain = passedOn{Interrupted: maps.Clone(m.Interrupted), Disrupted: maps.Clone(m.Disrupted)}
}

// attempt is a move with an open outcome.
type attempt struct {
	pod               types.UID
	reason            migration.Reason
	started           time.Time
	provisions        bool      // whether an autoscaler has to add a node for the replacement
	surges            bool      // whether the replacement could start before its pod ended
	released          bool      // whether its pod was seen as released
	goneSince         time.Time // when the pod was first seen to be gone; zero if it is not
	placedBefore      int       // the number of replicas in place (placed) at the start of the move
	desiredBefore     int       // the number of replicas that the workload should have had then
	unavailableBefore int       // the number of replicas that did not run at that time
}

type backOff struct {
	Until time.Time
	Wait  time.Duration
	// Reason is the reason of the last failed move, Placed the number of replicas in place (placed)
	// when it started, and Template the template of its workload when it failed (templateOf).
	Reason   migration.Reason
	Placed   int
	Template string
	// Desired is the number of replicas that the workload should have had when it started.
	Desired int
	// Open reports whether the pod is gone, but the outcome of the move is not known yet.
	Open bool
	// IsReported reports whether an event has reported a back-off of at least evictBackOff, or need
	// not: an autoscaler reports itself why it adds no node.
	IsReported bool
}

// keyOf returns the key of a workload in the memory. A group of pods is created anew, with another
// UID, after each loss of one of its pods, but with the same name.
func keyOf(w *snapshot.Workload) workload.OwnerKey {
	key := w.Key
	if w.GroupsKey != (workload.OwnerKey{}) {
		key = w.GroupsKey
		key.Role = w.Name
	}
	return key
}

// templateOf returns a value that changes with the template of the newest pods of the workload; ""
// if it has no revisions.
func templateOf(w *snapshot.Workload) string {
	switch {
	case w.StatefulSet != nil:
		return w.StatefulSet.Status.UpdateRevision
	case len(w.Revisions) > 0:
		return string(w.Revisions[len(w.Revisions)-1].Key.UID)
	}
	return ""
}

type seenNode struct {
	*snapshot.Node
	loss node.LossDetector
}

// observe records which spot pools lost nodes, and which workloads had pods on reclaimed nodes. The
// removal of a node by an autoscaler is not a loss.
func (m *memory) observe(s *snapshot.Snapshot) {
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
		if seen := cmp.Or(m.nodes[event.UID], last[event.UID]); seen != nil {
			seen.loss.Record(event)
		}
	}
	for _, n := range s.Nodes {
		occupied := slices.ContainsFunc(n.Pods, func(p *snapshot.Pod) bool { return workload.Occupies(p.Pod, n.Node) })
		loss := &m.nodes[n.UID].loss
		mayReturn := loss.MayReturn(s.Now)
		if loss.Observe(n.Node, n.Disruption, occupied, s.Now); mayReturn && !loss.MayReturn(s.Now) {
			// Other nodes that are lost now are recorded again below.
			m.Interrupted, m.Disrupted = maps.Clone(m.certain.Interrupted), maps.Clone(m.certain.Disrupted)
		}
	}
	for _, n := range s.Nodes {
		if !m.lost(m.nodes[n.UID], s.Now) && n.Facts.Signal == decision.Reclaim {
			m.interrupt(n, s.Now) // maintenance, or an on-demand node: the controller drains it too
			m.certain.interrupt(n, s.Now)
		}
	}
	for _, seen := range last { // nodes that vanished
		seen.loss.ObserveDeletion(s.Now)
		m.lost(seen, s.Now)
	}
}

// lost records the loss of a spot node, and reports whether the node was lost.
func (m *memory) lost(seen *seenNode, now time.Time) bool {
	if !seen.loss.Lost() || seen.Facts.Capacity.Type != decision.Spot {
		return false
	}
	all := []*passedOn{&m.passedOn, &m.certain}
	if seen.loss.MayReturn(now) {
		all = all[:1]
	}
	for _, l := range all {
		l.Disrupted[seen.Facts.Pool] = now
		l.interrupt(seen.Node, now)
	}
	return true
}

// interrupt records an interruption of the workloads with pods on n.
func (l *passedOn) interrupt(n *snapshot.Node, now time.Time) {
	for _, p := range n.Pods {
		if p.Workload != nil {
			l.Interrupted[keyOf(p.Workload)] = now
		}
	}
}

// pause returns the pause or back-off of a workload that has not ended. A failed move that
// should save cost does not delay a heal.
func (m *memory) pause(w *snapshot.Workload, reason migration.Reason, now time.Time, pause time.Duration) Obstacle {
	last, ok := m.Interrupted[keyOf(w)]
	b := m.BackOffs[keyOf(w)]
	switch {
	case ok && now.Before(last.Add(pause)):
		return Obstacle{Cause: Interrupted, Until: last.Add(pause)}
	case now.Before(b.Until) && b.Template == templateOf(w) && !(reason == migration.Heal && savesCost(b.Reason)):
		return Obstacle{Cause: BackedOff, Until: b.Until}
	}
	return Obstacle{}
}

func savesCost(reason migration.Reason) bool {
	return reason == migration.ReturnToSpot || reason == migration.MakeRoom
}

// track updates the attempts and returns the number of moves in progress. A move is in progress
// while its pod is leaving, and then until its workload is settled. When the workload is settled,
// the move either has reduced the deficit, or the workload is backed off. A replacement that does
// not become ready blocks other moves for moveTimeout at most. A pod that does not end blocks them
// until endsLate.
//
// A pod that an earlier controller released counts too, but only if it was released from an
// existing workload. Each workload counts at most once, because it has at most one move. So pods
// with forged release records cannot use up the limit of moves.
func (m *memory) track(r *round) (inProgress int) {
	releases := map[workload.OwnerKey]bool{}
	for _, a := range m.attempts {
		r.attempted[a.pod] = nil
	}
	for _, p := range r.snapshot.Pods {
		if _, ok := r.attempted[p.UID]; ok {
			r.attempted[p.UID] = p
		}
		switch {
		case r.endsLate(p):
		case p.ReleasedFrom != nil && rebalancing(p.Release.Reason):
			releases[p.ReleasedFrom.Workload.Key] = true
		case p.DeletionTimestamp != nil && r.attempted[p.UID] != nil:
			inProgress++
		}
	}
	inProgress += len(releases)
	for _, w := range r.snapshot.Workloads {
		guard(w, func() {
			if a := m.attempts[keyOf(w)]; a != nil && m.unsettled(r, w, a, r.attempted[a.pod]) {
				inProgress++
			}
			if m.attempts[keyOf(w)] == nil && r.transitions[w.Key] == (snapshot.PodsInTransition{}) && !r.starting(w) {
				m.close(w) // a rollout ended the attempt, or the leader changed
			}
		})
	}
	return inProgress
}

// maxMoveTime is the maximum time for which a leaving pod counts against the limit of moves. The
// user can extend the time that a pod takes to leave, by minReadySeconds, a PodDisruptionBudget or
// its grace period.
const maxMoveTime = time.Hour

// endsLate reports whether a leaving pod is not expected to end soon: it is overdue, was released
// maxMoveTime ago, or has more than maxMoveTime left of its grace period.
func (r *round) endsLate(p *snapshot.Pod) bool {
	return p.Overdue(r.now) || p.Release != nil && r.now.Sub(p.Release.At) >= maxMoveTime ||
		p.DeletionTimestamp != nil && p.DeletionTimestamp.Sub(r.now) > maxMoveTime
}

// unsettled reports whether the pod of an attempt is gone and its workload is not settled yet. pod
// is nil if it is gone. unsettled also records how the attempt ended.
func (m *memory) unsettled(r *round, w *snapshot.Workload, a *attempt, pod *snapshot.Pod) bool {
	switch {
	case pod != nil && pod.Release != nil:
		a.released = true
	case pod != nil && pod.DeletionTimestamp != nil:
	case pod != nil && r.settings.Paused.Stops(safety.Cause(a.reason)):
		delete(m.attempts, keyOf(w))
	case pod != nil:
		if a.released || r.now.Sub(a.started) >= moveTimeout {
			m.recordFailure(w, a, minBackOff, r.now)
			delete(m.attempts, keyOf(w))
		}
	case w.RollingOut && !rolloutPaused(w):
		delete(m.attempts, keyOf(w)) // the rollout replaces the pods that the move should improve
	case r.transitions[w.Key].Leaving() || unavailable(r.transitions[w.Key]) > a.unavailableBefore || r.starting(w):
		m.recordGone(w, a, r.now)
		return r.now.Sub(a.goneSince) < moveTimeout
	default:
		m.recordGone(w, a, r.now)
		m.close(w)
		delete(m.attempts, keyOf(w))
	}
	return false
}

// recordGone records when the pod of an attempt was first seen to be gone. The move counts as
// failed from then on, until it has reduced the deficit: the next leader does not know the attempt.
func (m *memory) recordGone(w *snapshot.Workload, a *attempt, now time.Time) {
	if !a.goneSince.IsZero() {
		return
	}
	least := evictBackOff
	if a.surges {
		least = minBackOff
	}
	a.goneSince = now
	m.recordFailure(w, a, least, now)
}

// close ends the back-off of a settled workload if its last move has helped. Otherwise the move has
// failed.
func (m *memory) close(w *snapshot.Workload) {
	b := m.BackOffs[keyOf(w)]
	if b.Open && placed(w, b.Reason) > b.Placed+min(0, w.Desired-b.Desired) { // a scale may have removed such replicas
		delete(m.BackOffs, keyOf(w))
	} else if b.Open {
		b.Open = false
		m.BackOffs[keyOf(w)] = b
	}
}

// placed returns the number of replicas of a workload that are where moves for a reason bring them.
// It does not compare them with what the workload needs, which changes with nodes and other pods.
// For make room it counts replicas on spot, whether or not that helped the waiting pod.
func placed(w *snapshot.Workload, reason migration.Reason) int {
	switch reason {
	case migration.Heal:
		return w.CountPods(func(p *snapshot.Pod) bool { return runsOn(p, decision.OnDemand) })
	case migration.Assign:
		return w.CountPods(requiresOnDemand)
	}
	return w.CountPods(func(p *snapshot.Pod) bool { return runsOn(p, decision.Spot) })
}

// recordFailure backs a workload off for at least that long.
func (m *memory) recordFailure(w *snapshot.Workload, a *attempt, least time.Duration, now time.Time) {
	b := backOff{
		Wait: least, Reason: a.reason, Placed: a.placedBefore, Template: templateOf(w), Desired: a.desiredBefore, IsReported: a.provisions,
		Open: !a.goneSince.IsZero(),
	}
	most := maxBackOff
	if a.provisions || least == minBackOff {
		most = shortBackOff
	}
	if last := m.BackOffs[keyOf(w)]; last.Template == b.Template {
		b.Wait = min(max(2*last.Wait, least), most)
	}
	b.Until = now.Add(b.Wait)
	m.BackOffs[keyOf(w)] = b
}

// reportBackOffs adds, once for each long back-off, a move that only reports it.
func (r *round) reportBackOffs() {
	for _, w := range r.snapshot.Workloads {
		b := r.BackOffs[keyOf(w)]
		if b.IsReported || b.Wait < evictBackOff || r.attempts[keyOf(w)] != nil || r.pause(w, b.Reason, r.now, 0).Cause != BackedOff {
			continue
		}
		b.IsReported = anyPod(w, func(p *snapshot.Pod) bool {
			if p.Node != nil {
				r.moves = append(r.moves, migration.Move{Pod: p, Reason: b.Reason, Useless: fmt.Sprintf(
					"the last move of its workload (%s) improved nothing, although by requests a node had room; the next one starts after %s, "+
						"or after a change of its template", b.Reason, b.Until.UTC().Format(time.RFC3339))})
			}
			return p.Node != nil
		})
		r.BackOffs[keyOf(w)] = b
	}
}

// forget removes what no longer counts. The attempt and the back-off of a workload remain while it
// has no pods: an evicted pod may be its only one.
func (m *memory) forget(r *round) {
	workloads := map[workload.OwnerKey]bool{}
	for _, w := range r.snapshot.Workloads {
		workloads[keyOf(w)] = true
	}
	maps.DeleteFunc(m.attempts, func(key workload.OwnerKey, a *attempt) bool {
		// A pod that still runs and is not in the plan any more does not need to move.
		pod := r.attempted[a.pod]
		_, planned := r.placements[pod]
		return !workloads[key] && r.now.Sub(a.started) >= evictBackOff || pod != nil && pod.Live() && !planned
	})
	maps.DeleteFunc(m.BackOffs, func(key workload.OwnerKey, b backOff) bool {
		return !workloads[key] && !r.now.Before(b.Until) || r.now.Sub(b.Until) >= maxBackOff
	})
	for _, l := range []*passedOn{&m.passedOn, &m.certain} {
		forgetOld(l.Interrupted, r.now, r.settings.Rebalance.PauseAfterInterruption.Duration)
		forgetOld(l.Disrupted, r.now, 2*r.settings.Rebalance.CalmPeriod.Duration)
	}
	forgetOld(m.EarlyMoves, r.now, r.settings.Rebalance.CalmPeriod.Duration)
}

func forgetOld[K comparable](times map[K]time.Time, now time.Time, ago time.Duration) {
	maps.DeleteFunc(times, func(_ K, at time.Time) bool { return now.Sub(at) >= ago })
}

// rebalancing reports whether reason is the reason of a move of this package.
func rebalancing(reason string) bool {
	return slices.Contains([]migration.Reason{migration.Heal, migration.Assign, migration.MakeRoom, migration.ReturnToSpot},
		migration.Reason(reason))
}

// recordUnavailable records since when each workload has had replicas that wait for a node or are
// missing.
func (m *memory) recordUnavailable(transitions map[workload.OwnerKey]snapshot.PodsInTransition, now time.Time) {
	maps.DeleteFunc(m.unavailableSince, func(key workload.OwnerKey, _ time.Time) bool { return unavailable(transitions[key]) == 0 })
	for key, pods := range transitions {
		if _, known := m.unavailableSince[key]; !known && unavailable(pods) > 0 {
			m.unavailableSince[key] = now
		}
	}
}

// unavailable returns the number of replicas of a workload that do not run.
func unavailable(m snapshot.PodsInTransition) int { return m.Waiting + m.Missing }

// unavailableTooLong reports whether replicas of the workload have been unavailable for so long
// that its other replicas may be moved. Possible causes are a quota that rejects replicas, or an
// unbound claim. A workload does not count while the outcome of a move is open, because the move
// itself may have made the replica unavailable. It does not count either if replicas are missing
// and a move evicts first: if a replica cannot be created, the replacement of an evicted pod may
// not be created either.
func (r *round) unavailableTooLong(w *snapshot.Workload) bool {
	if r.transitions[w.Key].Missing > 0 && !w.HasReplicaSets() {
		return false
	}
	since, isUnavailable := r.unavailableSince[w.Key]
	a := r.attempts[keyOf(w)]
	return isUnavailable && r.now.Sub(since) >= startupTimeout && (a == nil || a.goneSince.IsZero())
}
