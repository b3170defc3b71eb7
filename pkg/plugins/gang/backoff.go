package gang

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// A gang pauses for firstPause after one of its pods released its node. The pods release their
	// nodes one by one, each after a write to the API server. Each release retries the pod that had
	// found no node. That pod would be assumed on the released node, and the rejection would begin
	// again.
	//
	// The released nodes also retry such pods of other gangs. If their rejection takes longer than
	// firstPause, two gangs retry each other. So the pause doubles, up to lastPause, with each
	// rejection without an event that may help. A retry by the timer after a longer wait than
	// lastPause resets it.
	firstPause = 300 * time.Millisecond
	lastPause  = 10 * time.Second
	// A timer retries a refused gang after firstRetry, and doubles the interval up to lastRetry. No
	// event shows that two attempts blocked each other, or that Coscheduling had a stale PodGroup.
	// An event that may help retries the gang at once. The next retry by the timer follows within
	// eventRetry, which equals the scheduler's longest back-off.
	firstRetry = 2 * time.Second
	eventRetry = 10 * time.Second
	lastRetry  = time.Minute
	// watchLag is how long Coscheduling, which has its own watch of PodGroups, may lag behind
	// this plugin.
	watchLag = time.Second
)

// backoffs records the refused gangs: which gangs pause, and when a timer retries them. Gangs are
// identified by the key of their PodGroup, namespace/name. All methods may be called concurrently.
type backoffs struct {
	clock clock.WithDelayedExecution
	// reject ends the wait at Permit of the pods of a gang. It must not block.
	reject func(gang string)
	// retry retries the pods of a gang that have no node. It returns false if there are none. It
	// must not block.
	retry func(gang string) bool

	mu    sync.Mutex
	gangs map[string]*backoff
}

type backoff struct {
	// rejected is when pods of the gang last lost their assumed nodes, or zero after a retry by the
	// timer. victims are the pods that have lost their nodes since a pod last found none.
	rejected time.Time
	victims  map[types.UID]bool
	// why states which pod found no node last time, and the reasons of the nodes.
	why string
	// changed means that the PodGroup has changed. Pods may wait at Permit because Coscheduling had
	// the old one when it placed them.
	changed bool
	// pause is how long the gang pauses after rejected.
	pause time.Duration
	// eventSeen is set by an event that may help, and cleared if a pod finds no node after it.
	eventSeen bool
	// next is the duration of the next wait for the timer. timer is set during a wait, until due.
	next  time.Duration
	timer clock.Timer
	due   time.Time
}

func newBackoffs(c clock.WithDelayedExecution, reject func(gang string), retry func(gang string) bool) *backoffs {
	return &backoffs{clock: c, reject: reject, retry: retry, gangs: map[string]*backoff{}}
}

// NoNode records that a pod of the gang found no node, and the reasons of the nodes. It schedules a
// retry. After an event that may help, the pause is short again. Otherwise it doubles if the gang
// was rejected since the last call.
func (r *backoffs) NoNode(gang, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.refused(gang)
	switch {
	case g.eventSeen:
		g.pause = firstPause
	case len(g.victims) > 0:
		g.pause = min(2*g.pause, lastPause)
	}
	g.why, g.eventSeen, g.victims = why, false, map[types.UID]bool{}
}

// Refused schedules a retry of the gang.
func (r *backoffs) Refused(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused(gang)
}

// Rejected records that a pod of the gang, the victim, has lost its assumed node. The gang pauses,
// and a retry is scheduled.
func (r *backoffs) Rejected(gang string, victim types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.refused(gang)
	g.rejected = r.clock.Now()
	g.victims[victim] = true
}

// refused returns the record of the gang, which it creates if necessary, and schedules a retry. The
// caller of refused, endPause, restart and wait must hold r.mu.
func (r *backoffs) refused(gang string) *backoff {
	g := r.gangs[gang]
	if g == nil {
		g = &backoff{next: firstRetry, pause: firstPause, victims: map[types.UID]bool{}}
		r.gangs[gang] = g
	}
	if g.timer == nil {
		r.wait(gang, g, g.next)
		g.next = min(2*g.next, lastRetry)
	}
	return g
}

// EventSeen ends the gang's pause after an event that may help it.
func (r *backoffs) EventSeen(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.gangs[gang]; g != nil {
		r.endPause(gang, g, eventRetry)
	}
}

// PodGroupSeen is EventSeen for a PodGroup, which Coscheduling may not have seen yet. If its spec
// has changed, the next retry also rejects the pods that wait at Permit: Coscheduling may have
// counted them with the old minMember, and does not count them again.
func (r *backoffs) PodGroupSeen(gang string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil {
		return
	}
	r.endPause(gang, g, watchLag)
	if changed {
		g.changed = true
		r.restart(gang, g, watchLag)
	}
}

// endPause ends the gang's pause. A retry that is due later than until is due then.
func (r *backoffs) endPause(gang string, g *backoff, until time.Duration) {
	g.eventSeen, g.next = true, min(g.next, eventRetry)
	if g.timer != nil && g.due.Sub(r.clock.Now()) > until {
		r.restart(gang, g, until)
	}
}

func (r *backoffs) restart(gang string, g *backoff, until time.Duration) {
	if g.timer != nil {
		g.timer.Stop()
	}
	r.wait(gang, g, until)
}

// Forget removes a gang that was scheduled.
func (r *backoffs) Forget(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.gangs[gang]; g != nil {
		if g.timer != nil {
			g.timer.Stop()
		}
		delete(r.gangs, gang)
	}
}

// Paused reports whether the pod's gang pauses, and why it was rejected. If it does, a retry is
// scheduled. An attempt for a victim ends the pause: no action of its gang retries a victim, so
// another event did.
func (r *backoffs) Paused(gang string, pod types.UID) (why string, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil || g.eventSeen || r.clock.Since(g.rejected) > g.pause {
		return "", false
	}
	if g.victims[pod] {
		g.eventSeen = true
		return "", false
	}
	r.refused(gang)
	return g.why, true
}

func (r *backoffs) wait(gang string, g *backoff, until time.Duration) {
	g.due = r.clock.Now().Add(until)
	g.timer = r.clock.AfterFunc(until, func() {
		r.mu.Lock()
		g.timer = nil
		changed := g.changed
		g.changed, g.rejected = false, time.Time{}
		if until > lastPause {
			g.pause = firstPause
		}
		r.mu.Unlock()
		if changed {
			r.reject(gang)
		}
		if r.retry(gang) {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if g.timer == nil && r.gangs[gang] == g {
			delete(r.gangs, gang)
		}
	})
}
