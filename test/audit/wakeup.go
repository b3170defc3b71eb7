package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is the default of Options.Patience: the time for which a pod may stay pending
	// although it could run. The scheduler's longest back-off is 10 s.
	patience = 12 * time.Second
	// backlog is a number of pods that the scheduler has not tried since it started. If more are
	// pending, the scheduler is still working through its queue.
	backlog = 20
	// silence is the time without a renewal after which a leader counts as lost. It renews its
	// lease every 2 s.
	silence = 5 * time.Second
)

// LostWakeup is a pod that stayed pending for longer than patience although a node had room for
// it and the policy allowed that node during all that time.
type LostWakeup struct {
	Pod   string // namespace/name
	Node  string // a node with room at the end
	Since time.Time
	At    time.Time // when patience ran out
	// Detail explains why the pod could run, for a person.
	Detail string
}

func (l LostWakeup) String() string {
	return fmt.Sprintf("lost wake-up: pod %s is pending at %s, although it could run since %s, now on node %s: %s",
		l.Pod, clock(l.At), clock(l.Since), l.Node, l.Detail)
}

// wakeups is the state of the search for lost wake-ups.
type wakeups struct {
	patience time.Duration
	pending  map[types.UID]*pod
	repel    map[types.UID]*pod // pods with required anti-affinity, pending or not
	progress time.Time          // when the scheduler last bound a pod or found a pod unschedulable
	started  time.Time          // when it last started with an empty queue
	lease    *leadership
}

// leadership is the last observation of the scheduler's lease.
type leadership struct {
	holder string // "" if it was released
	seen   time.Time
}

// observeLease derives from the scheduler's lease whether a scheduler works.
func (c *core) observeLease(at time.Time, how change, object *coordinationv1.Lease) {
	if object.Namespace != metav1.NamespaceSystem || object.Name != c.profile {
		return
	}
	now := &leadership{seen: at}
	if how != deleted && object.Spec.HolderIdentity != nil {
		now.holder = *object.Spec.HolderIdentity
	}
	if c.wakeups.lease == nil || now.holder != c.wakeups.lease.holder {
		c.schedulerStarted(at)
	}
	c.wakeups.lease = now
}

// schedulerWorks reports whether a scheduler can wake pods. Without a lease there is no leader
// election, and it is true.
func (w *wakeups) schedulerWorks(now time.Time) bool {
	return w.lease == nil || (w.lease.holder != "" && now.Sub(w.lease.seen) <= silence)
}

// waiting is the state of a pending pod in the search.
type waiting struct {
	since    time.Time // since when it could run continuously; zero if it cannot
	node     string    // where it could run at the last check
	detail   string
	held     time.Time // since when an older revision has used on-demand continuously; zero if none does
	queued   bool      // it waits since before the scheduler started, and has not changed since
	reported bool
}

// schedulerStarted resets every clock: a scheduler loses the state of its queue in a restart, and
// tries all pods again.
func (c *core) schedulerStarted(at time.Time) {
	c.wakeups.started, c.wakeups.progress = at, at
	for _, p := range c.wakeups.pending {
		p.wait = waiting{reported: p.wait.reported, queued: true}
	}
}

// updatePending updates the set of pods that wait for the audited scheduler. Another
// scheduler is not audited. The pod has changed at a time.
func (c *core) updatePending(p *pod, at time.Time) {
	if p.wait.queued {
		p.wait.queued, c.wakeups.progress = false, at
	}
	waits := !c.gated && p.node == "" && p.live() && p.object.Spec.SchedulerName == c.profile && len(p.object.Spec.SchedulingGates) == 0 &&
		p.member.kind != noOpinion && p.member.kind != released && isModeled(p.object)
	if waits {
		c.wakeups.pending[p.uid] = p
		return
	}
	delete(c.wakeups.pending, p.uid)
	p.wait = waiting{}
}

// recheck stops the clocks of pods that cannot run any more after a change, at the time of that
// change.
func (c *core) recheck(at time.Time) {
	pass := pass{core: c, now: at, placed: map[types.UID][]*pod{}}
	for _, p := range c.wakeups.pending {
		if !p.wait.since.IsZero() {
			pass.consider(p)
		}
	}
}

// findLostWakeups starts and stops clocks, and reports the pods whose patience has run out.
func (c *core) findLostWakeups(now time.Time) {
	if c.busy(now) || !c.wakeups.schedulerWorks(now) {
		for _, p := range c.wakeups.pending {
			p.wait.since = time.Time{}
		}
		return
	}
	var lost []LostWakeup
	var pods []*pod
	pass := pass{core: c, now: now, placed: map[types.UID][]*pod{}}
	for _, p := range c.wakeups.pending {
		pass.consider(p)
		if p.wait.since.IsZero() || now.Sub(p.wait.since) <= c.wakeups.patience || p.wait.reported {
			continue
		}
		lost = append(lost, LostWakeup{p.name(), p.wait.node, p.wait.since, now, p.wait.detail})
		pods = append(pods, p)
	}
	if len(lost) == 0 || c.lagging() || c.stale(pods) {
		return
	}
	slices.SortFunc(lost, func(a, b LostWakeup) int { return strings.Compare(a.Pod, b.Pod) })
	for _, l := range lost {
		c.findings = append(c.findings, l)
	}
	for _, p := range c.wakeups.pending {
		p.wait.reported = p.wait.reported || slices.ContainsFunc(lost, func(l LostWakeup) bool { return l.Pod == p.name() })
	}
}

// lagging reports whether a pending pod has a newer state that was not observed yet. If the
// scheduler binds hundreds of pods at once, the auditor is slower than the scheduler and must not
// report lost wake-ups.
func (c *core) lagging() bool {
	if c.newest == nil {
		return false
	}
	for _, p := range c.wakeups.pending {
		newest, exists := c.newest(p.object.Namespace, p.object.Name)
		if !exists || revisionOf(newest) != revisionOf(p.object) {
			return true
		}
	}
	return false
}

// stale reports whether the API server has a newer state of the pods. After an outage, the
// watch of leases can recover long before the watch of pods: client-go waits for up to a minute.
func (c *core) stale(pods []*pod) bool {
	return c.fetch != nil && slices.ContainsFunc(pods, func(p *pod) bool {
		current := c.fetch(p.object.Namespace, p.object.Name)
		return current == nil || revisionOf(current) != revisionOf(p.object)
	})
}

// busy reports whether the scheduler is working through a long queue, in which a pod may wait
// without being lost. After a start, the result of most tries cannot be observed, because it is
// the same as before.
func (c *core) busy(now time.Time) bool {
	untried, queued := 0, 0
	for _, p := range c.wakeups.pending {
		if podScheduled(p.object) == nil {
			untried++
		}
		if p.wait.queued {
			queued++
		}
	}
	idle := now.Sub(c.wakeups.progress)
	return untried > backlog && idle < window || queued > backlog && idle < c.wakeups.patience
}

// pass is one evaluation of pending pods at one time.
type pass struct {
	*core
	now    time.Time
	placed map[types.UID][]*pod // cached pods on spot by revision
}

// consider computes whether the pod could run now, and starts or stops its clock.
func (l pass) consider(p *pod) {
	l.recordOlderOnDemand(p, l.now)
	p.wait.node, p.wait.detail = l.place(p)
	if p.wait.node == "" {
		p.wait.since = time.Time{}
	} else if p.wait.since.IsZero() {
		p.wait.since = l.now
	}
}

// place returns a node on which the pod could run now, and the reason; "" if no such node exists.
// It prefers the node of the last check, then the first by name.
func (l pass) place(p *pod) (string, string) {
	all := l.readings(p, l.now, stamp{at: l.now})
	r := all[len(all)-1]
	if !r.known || l.selectedByAntiAffinity(p.object) {
		return "", ""
	}
	placed, known := l.placed[p.member.revision]
	if !known {
		placed = l.onSpot(p, l.now, stamp{at: l.now})
		l.placed[p.member.revision] = placed
	}
	spot := l.allowedOnSpot(r, p, len(placed), l.now)
	onDemand := r.overflow != "Never" || !r.beyondFloor(p.object.Name, l.onDemand(p))
	if r.overflow == "Never" && r.assignedBeyond && !r.onlyOnDemand && len(placed) < r.budget() {
		onDemand = false // the floor is for siblings that were assigned to it
	}
	nominated := l.nominated(p)
	// Checking every node for every pod at every change would be too slow. The node of the last
	// check is tried first.
	if n := l.nodes[p.wait.node]; n != nil && l.allows(n, r, placed, spot != "", onDemand, l.now) && n.fits(p, nominated[p.wait.node]) {
		if n.facts.last().spot {
			return p.wait.node, spot
		}
		return p.wait.node, "on-demand"
	}
	best, why := "", ""
	for name, n := range l.nodes {
		if (best == "" || name < best) && l.allows(n, r, placed, spot != "", onDemand, l.now) && n.fits(p, nominated[name]) {
			best, why = name, "on-demand"
			if n.facts.last().spot {
				why = spot
			}
		}
	}
	return best, why
}

// onDemand counts the other pods of p's revision that are on on-demand or nominated to it.
func (l pass) onDemand(p *pod) (count int) {
	for _, q := range l.revisions[p.member.revision] {
		name := q.node
		if name == "" {
			name = q.object.Status.NominatedNodeName
		}
		if n := l.nodes[name]; q != p && q.live() && n != nil && n.facts.last().exists && !n.facts.last().spot {
			count++
		}
	}
	return count
}

// allows reports whether the policy allows a pending pod on the node. spot and onDemand report
// whether it allows the pod on nodes of that type.
func (c *core) allows(n *node, r reading, placed []*pod, spot, onDemand bool, now time.Time) bool {
	facts := n.facts.last()
	if !facts.exists || facts.signal != "" {
		return false
	}
	if !facts.labelled && now.Before(facts.created.Add(c.policies.last().labelGrace+time.Second)) {
		return false // the result depends on labels that the node may still get, and on other pending pods
	}
	if !facts.spot {
		return onDemand
	}
	if !spot || r.anyway || r.maxPerPool == nil || facts.pool == "" {
		return spot
	}
	inPool := 0
	for _, q := range placed {
		if c.nodes[q.node].facts.last().pool == facts.pool {
			inPool++
		}
	}
	return inPool < max(1, r.maxPerPool.count(r.desired))
}

// allowedOnSpot returns the reason for which the policy allows the pod on spot, or "" if it does
// not. A wait counts from the scheduler's start if that is later, because the scheduler may not
// know of earlier waits.
func (c *core) allowedOnSpot(r reading, p *pod, placed int, now time.Time) string {
	from := p.unschedulableSince
	if c.wakeups.started.After(from) {
		from = c.wakeups.started
	}
	switch ordinal, ordered := r.ordinal(p.object.Name); {
	case r.exempt:
		return "spot: it requires spot itself"
	case r.anyway:
		return "spot: ScheduleAnyway"
	case r.granted:
		return "spot: granted by the controller"
	case ordered && (ordinal < r.start || ordinal >= r.start+r.floor):
		return fmt.Sprintf("spot: ordinal %d is not below the floor of %d", ordinal, r.floor)
	case !ordered && placed < r.budget():
		return fmt.Sprintf("spot: %d of a budget of %d are placed", placed, r.budget())
	case r.onlyOnDemand: // its waiting time has no effect
	case !p.unschedulableSince.IsZero() && now.Sub(from) >= r.fallbackAfter:
		return fmt.Sprintf("spot: unschedulable for longer than fallbackAfter (%s)", r.fallbackAfter)
	case !p.unschedulableSince.IsZero() && !p.wait.held.IsZero() && now.Sub(from) >= r.rolloutRelief &&
		now.Sub(p.wait.held) >= r.rolloutRelief:
		return fmt.Sprintf("spot: an older revision has used on-demand for %s", r.rolloutRelief)
	}
	return ""
}

// recordOlderOnDemand records since when an older revision of the pod's Deployment has used
// on-demand. Only certain facts count: a lower revision number and a pod that is not terminating.
func (c *core) recordOlderOnDemand(p *pod, now time.Time) {
	own := c.owners[p.member.revision]
	if own == nil {
		p.wait.held = time.Time{}
		return
	}
	facts := own.facts.last()
	for uid, sibling := range c.siblings[facts.parent()] {
		if sibling.facts.last().rollout >= facts.rollout || sibling.facts.last().rollout == 0 {
			continue
		}
		for _, q := range c.revisions[uid] {
			if n := c.nodes[q.node]; q.live() && n != nil && n.facts.last().exists && !n.facts.last().spot {
				if p.wait.held.IsZero() {
					p.wait.held = now
				}
				return
			}
		}
	}
	p.wait.held = time.Time{}
}
