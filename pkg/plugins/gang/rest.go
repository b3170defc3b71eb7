package gang

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// quiet is how long a gang rests after a pod of it has given its node back. They do so one by one, each after a write to the API server,
	// and every time the pod that had found no node is tried again, would take such a node, and begin it all anew.
	quiet = 300 * time.Millisecond
	// A refused gang is tried again by the clock after firstRetry, then after twice that and so on up to lastRetry: no event tells that two
	// attempts got in each other's way, or that Coscheduling's view of a PodGroup was old. After an event that may help, which has it
	// tried at once, the next time is at most newsRetry away: as long as the scheduler's longest back-off.
	firstRetry = 2 * time.Second
	newsRetry  = 10 * time.Second
	lastRetry  = time.Minute
	// otherWatch is how long after this plugin Coscheduling, which watches PodGroups by itself, may still have the old one.
	otherWatch = time.Second
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
	// rejected is when pods of it last lost the nodes that they held, and victims are those that have since one found none.
	rejected time.Time
	victims  map[types.UID]bool
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

// Unfit has the gang tried again later: a pod of it found no node, and why says what kept it off each.
func (r *rests) Unfit(gang, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.refused(gang)
	g.why, g.news, g.victims = why, false, map[types.UID]bool{}
}

// Refused has the gang tried again later.
func (r *rests) Refused(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused(gang)
}

// Rejected has the gang rest, and tried again later: a pod of it, the victim, has lost the node that it held.
func (r *rests) Rejected(gang string, victim types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.refused(gang)
	g.rejected = r.clock.Now()
	g.victims[victim] = true
}

func (r *rests) refused(gang string) *rest {
	g := r.of(gang)
	if g.timer == nil {
		r.wait(gang, g, g.next)
		g.next = min(2*g.next, lastRetry)
	}
	return g
}

// Happened ends the gang's rest: something has happened that may help it.
func (r *rests) Happened(gang string) { r.happened(gang, newsRetry) }

// HappenedFirst is Happened for what Coscheduling may not have seen yet.
func (r *rests) HappenedFirst(gang string) { r.happened(gang, otherWatch) }

func (r *rests) happened(gang string, again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil {
		return
	}
	g.news, g.next = true, min(g.next, newsRetry)
	if g.timer != nil && g.due.Sub(r.clock.Now()) > again {
		g.timer.Stop()
		r.wait(gang, g, again)
	}
}

// Forget forgets a gang that got what it wanted.
func (r *rests) Forget(gang string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.gangs[gang]; g != nil {
		if g.timer != nil {
			g.timer.Stop()
		}
		delete(r.gangs, gang)
	}
}

// Resting returns whether the pod's gang rests, and why it was rejected; then it is tried again later. A victim that comes again ends the rest: nothing that its gang
// does has a victim tried again, so something else did.
func (r *rests) Resting(gang string, pod types.UID) (why string, rests bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangs[gang]
	if g == nil || g.news || r.clock.Since(g.rejected) > quiet {
		return "", false
	}
	if g.victims[pod] {
		g.news = true
		return "", false
	}
	r.refused(gang)
	return g.why, true
}

// of returns what is known of the gang. Like wait, it is called with the lock held.
func (r *rests) of(gang string) *rest {
	g := r.gangs[gang]
	if g == nil {
		g = &rest{next: firstRetry, victims: map[types.UID]bool{}}
		r.gangs[gang] = g
	}
	return g
}

func (r *rests) wait(gang string, g *rest, until time.Duration) {
	g.due = r.clock.Now().Add(until)
	g.timer = r.clock.AfterFunc(until, func() {
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
