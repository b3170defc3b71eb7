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
	// patience is how long a pod may stay pending although it could run, unless Options say otherwise: the scheduler's longest back-off is
	// 10 s.
	patience = 12 * time.Second
	// backlog is how many pods that the scheduler never tried mean that it is still working through its queue.
	backlog = 20
	// silence is how long a leader that renews its lease every 2 s may be silent before it counts as gone.
	silence = 5 * time.Second
)

// LostWakeup is a pod that stayed pending for longer than patience although all that time a node fitted and the policy
// allowed it there.
type LostWakeup struct {
	Pod   string // namespace/name
	Node  string // one that fitted at the end
	Since time.Time
	At    time.Time // when patience ended
	// Detail says why the pod could run, for a person.
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
	progress time.Time          // when the scheduler last bound a pod or found one unschedulable
	started  time.Time          // when it last began with nothing remembered
	lease    *leadership
}

// leadership is the last that was seen of the scheduler's lease.
type leadership struct {
	holder string // "" when it was given back
	seen   time.Time
}

// observeLease keeps what the scheduler's lease says about whether it works.
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

// works reports whether a scheduler is there to wake pods. Without a lease there is no leader election, and it is.
func (w *wakeups) works(now time.Time) bool {
	return w.lease == nil || (w.lease.holder != "" && now.Sub(w.lease.seen) <= silence)
}

// waiting is what the search remembers of a pending pod.
type waiting struct {
	since    time.Time // since when it could run without a break; zero if it cannot
	node     string    // where it could run when last looked
	detail   string
	held     time.Time // since when an older revision has held on-demand without a break; zero if none does
	reported bool
}

// schedulerStarted begins every clock anew: what a scheduler remembered of its queue is gone after a restart.
func (c *core) schedulerStarted(at time.Time) {
	c.wakeups.started = at
	for _, p := range c.wakeups.pending {
		p.wait = waiting{reported: p.wait.reported}
	}
}

// notePending keeps the set of pods that wait for the scheduler under audit.
func (c *core) notePending(p *pod) {
	waits := p.node == "" && p.live() && p.object.Spec.SchedulerName == c.profile && len(p.object.Spec.SchedulingGates) == 0 &&
		p.member.kind != noOpinion && p.member.kind != released && modelled(p.object)
	if waits {
		c.wakeups.pending[p.uid] = p
		return
	}
	delete(c.wakeups.pending, p.uid)
	p.wait = waiting{}
}

// recheck stops the clocks of pods that a change has deprived of their chance, at the moment of that change.
func (c *core) recheck(at time.Time) {
	pass := pass{core: c, now: at, placed: map[types.UID][]*pod{}}
	for _, p := range c.wakeups.pending {
		if !p.wait.since.IsZero() {
			pass.consider(p)
		}
	}
}

// lookForLost starts and stops clocks, and reports the pods whose patience is over.
func (c *core) lookForLost(now time.Time) {
	if c.busy(now) || !c.wakeups.works(now) {
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
	if len(lost) == 0 || c.behind() || c.cutOff(pods) {
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

// behind reports whether some pod that seems to wait has changed already, though that was not observed yet: with hundreds of pods bound at
// once the auditor is slower than the scheduler, and must not take that for the scheduler's fault.
func (c *core) behind() bool {
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

// cutOff reports whether the API server knows better of pods that seem to wait. After an outage the watch of leases can be back long before
// that of pods: client-go waits for up to a minute.
func (c *core) cutOff(pods []*pod) bool {
	return c.ask != nil && slices.ContainsFunc(pods, func(p *pod) bool {
		current := c.ask(p.object.Namespace, p.object.Name)
		return current == nil || revisionOf(current) != revisionOf(p.object)
	})
}

// busy reports whether the scheduler is working through a long queue, in which a pod may wait without being lost.
func (c *core) busy(now time.Time) bool {
	untried := 0
	for _, p := range c.wakeups.pending {
		if podScheduled(p.object) == nil {
			untried++
		}
	}
	return untried > backlog && now.Sub(c.wakeups.progress) < window
}

// pass is one look at pending pods at one moment.
type pass struct {
	*core
	now    time.Time
	placed map[types.UID][]*pod // pods on spot by revision, as far as they were asked for
}

// consider works out whether the pod could run now, and starts or stops its clock.
func (l pass) consider(p *pod) {
	l.noteHeld(p, l.now)
	p.wait.node, p.wait.detail = l.place(p)
	if p.wait.node == "" {
		p.wait.since = time.Time{}
	} else if p.wait.since.IsZero() {
		p.wait.since = l.now
	}
}

// place returns a node on which the pod could run now, and why; "" if there is none. It is the one of last time or the first by name.
func (l pass) place(p *pod) (string, string) {
	all := l.readings(p, l.now, stamp{at: l.now})
	r := all[len(all)-1]
	if !r.known || l.repelled(p.object) {
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
		onDemand = false // it leaves that to siblings that were assigned to the floor
	}
	nominated := l.nominated(p)
	// Looking at every node for every pod at every change would make the auditor fall behind: where it could run last time will do.
	if n := l.nodes[p.wait.node]; n != nil && l.takes(n, r, placed, spot != "", onDemand, l.now) && n.fits(p, nominated[p.wait.node]) {
		if n.facts.last().spot {
			return p.wait.node, spot
		}
		return p.wait.node, "on-demand"
	}
	best, why := "", ""
	for name, n := range l.nodes {
		if (best == "" || name < best) && l.takes(n, r, placed, spot != "", onDemand, l.now) && n.fits(p, nominated[name]) {
			best, why = name, "on-demand"
			if n.facts.last().spot {
				why = spot
			}
		}
	}
	return best, why
}

// onDemand counts the other pods of p's revision that are on on-demand, or are nominated to it.
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

// takes reports whether the policy lets a pod that waits run on the node. spot and onDemand say whether it lets it on nodes of that type.
func (c *core) takes(n *node, r reading, placed []*pod, spot, onDemand bool, now time.Time) bool {
	facts := n.facts.last()
	if !facts.exists || facts.signal != "" {
		return false
	}
	if !facts.labelled && now.Before(facts.created.Add(c.policies.last().labelGrace+time.Second)) {
		return false // whether a young node takes it depends on labels that may still come, and on other pods that wait
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
	return inPool < max(1, r.maxPerPool.of(r.desired))
}

// allowedOnSpot returns why the policy lets the pod on spot, "" if it does not. Waits count from the scheduler's start
// where that is later: it may not remember.
func (c *core) allowedOnSpot(r reading, p *pod, placed int, now time.Time) string {
	from := p.refused
	if c.wakeups.started.After(from) {
		from = c.wakeups.started
	}
	switch ordinal, ordered := r.ordinal(p.object.Name); {
	case r.exempt:
		return "spot: it requires spot itself"
	case r.anyway:
		return "spot: ScheduleAnyway"
	case r.granted:
		return "spot: the controller has granted that"
	case ordered && (ordinal < r.start || ordinal >= r.start+r.floor):
		return fmt.Sprintf("spot: ordinal %d is not below the floor of %d", ordinal, r.floor)
	case !ordered && placed < r.budget():
		return fmt.Sprintf("spot: %d of a budget of %d are placed", placed, r.budget())
	case r.onlyOnDemand: // it earns nothing by waiting
	case !p.refused.IsZero() && now.Sub(from) >= r.fallbackAfter:
		return fmt.Sprintf("spot: unschedulable for longer than fallbackAfter (%s)", r.fallbackAfter)
	case !p.refused.IsZero() && !p.wait.held.IsZero() && now.Sub(from) >= r.rolloutRelief && now.Sub(p.wait.held) >= r.rolloutRelief:
		return fmt.Sprintf("spot: an older revision has held on-demand for %s", r.rolloutRelief)
	}
	return ""
}

// noteHeld keeps since when an older revision of the pod's Deployment has held on-demand. Only what is certain counts:
// a lower revision number and a pod that is not terminating.
func (c *core) noteHeld(p *pod, now time.Time) {
	own := c.owners[p.member.revision]
	if own == nil {
		p.wait.held = time.Time{}
		return
	}
	facts := own.facts.last()
	for uid, sibling := range c.siblings[facts.deployment] {
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
