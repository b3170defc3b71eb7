package gang

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// quiet is how long a gang that was rejected rests, whatever its own pods do. They give their nodes back one by one, each after a write to
	// the API server, and every time the pod that had found no node would be tried again, take such a node, and begin it all anew.
	quiet = time.Second
	// A refused gang is tried again by the clock after firstRetry, then after twice that and so on up to lastRetry: no event tells that two
	// attempts got in each other's way, or that Coscheduling's view of a PodGroup was old. After an event that may help, which has it
	// tried at once, the next time is at most newsRetry away: as long as the scheduler's longest back-off.
	firstRetry = 2 * time.Second
	newsRetry  = 10 * time.Second
	lastRetry  = time.Minute
)

// rests remembers the gangs that were refused: which of them rest, and when the clock has them tried again. A gang is known by the
// key of its PodGroup, namespace/name. All methods may be called concurrently.
type rests struct {
	clock clock.WithDelayedExecution
	// retry has the pods of a gang tried again that have no node, and returns false if there is none. It must not block.
	retry func(gang string) bool

	mu    sync.Mutex
	gangs map[string]*rest
}

type rest struct {
	// rejected is when pods of it last lost the nodes that they held.
	rejected time.Time
	// why says which pod found no node last time, and what kept it off each.
	why string
	// news is set by what may help it, and unset by a pod that finds no node all the same.
	news bool
	// next is how long the next wait for the clock lasts; timer is set while one lasts, until due.
	next  time.Duration
	timer clock.Timer
	due   time.Time
}

func newRests(c clock.WithDelayedExecution, retry func(gang string) bool) *rests {
	return &rests{clock: c, retry: retry, gangs: map[string]*rest{}}
}

// Unfit notes that a pod of the gang found no node, and why.
func (r *rests) Unfit(gang, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(gang)
	g.why, g.news = why, false
}

// Refused has the gang tried again later.
func (r *rests) Refused(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused(gang)
}

// Rejected has the gang rest, and tried again later: a pod of it has lost the node that it held.
func (r *rests) Rejected(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused(gang).rejected = r.clock.Now()
}

func (r *rests) refused(gang string) *rest {
	g := r.of(gang)
	if g.timer == nil {
		r.wait(gang, g)
		g.next = min(2*g.next, lastRetry)
	}
	return g
}

// Happened ends the gang's rest: something has happened that may help it.
func (r *rests) Happened(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil {
		return
	}
	g.news, g.next = true, min(g.next, newsRetry)
	if g.timer != nil && g.due.Sub(r.clock.Now()) > newsRetry {
		g.timer.Stop()
		r.wait(gang, g)
	}
}

// Resting returns whether the gang rests, and why it was rejected.
func (r *rests) Resting(gang string) (why string, rests bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil || g.news || r.clock.Since(g.rejected) > quiet {
		return "", false
	}
	return g.why, true
}

// of returns what is known of the gang. Like wait, it is called with the lock held.
func (r *rests) of(gang string) *rest {
	g := r.gangs[gang]
	if g == nil {
		g = &rest{next: firstRetry}
		r.gangs[gang] = g
	}
	return g
}

func (r *rests) wait(gang string, g *rest) {
	g.due = r.clock.Now().Add(g.next)
	g.timer = r.clock.AfterFunc(g.next, func() {
		r.mu.Lock()
		g.timer = nil
		r.mu.Unlock()
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
