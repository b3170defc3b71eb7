package replay

import (
	"math"
	"time"
)

// scaledTime is a duration of the trace, and the real time that a program is configured to wait for
// it.
type scaledTime struct{ trace, real time.Duration }

// moment is a moment in the trace and in real time.
type moment struct {
	at   time.Duration
	real time.Time
}

// pool is a spot pool as the controller sees it.
type pool struct {
	nodes int
	// since is the start of its calm period: its last notice or removal, or its first node. It is
	// zero for a pool that was calm before the window.
	since moment
	calm  bool
}

// waits follows the times for which the controller waits before it returns replicas to spot. The
// controller measures them in real time, while the rate of the clock changes and idle time is
// skipped. So the driver adapts the rate such that no wait ends for the controller before it ends
// in the trace.
type waits struct {
	calm, pause scaledTime
	pools       map[string]*pool
	// interrupted is the time of the last notice or removal of a node.
	interrupted moment
	// periods are the calm periods that have ended for the controller, in trace time.
	periods []time.Duration
}

func newWaits(calm, pause scaledTime) *waits {
	return &waits{calm: calm, pause: pause, pools: map[string]*pool{}}
}

// pool returns the pool of a zone.
func (w *waits) pool(zone string) *pool {
	if w.pools[zone] == nil {
		w.pools[zone] = &pool{}
	}
	return w.pools[zone]
}

// event records an event of the timeline at a real time.
func (w *waits) event(e Event, now time.Time) {
	m := moment{e.At, now}
	switch e.Kind {
	case NodeUp:
		p := w.pool(e.Node.Zone)
		if p.nodes == 0 {
			p.since, p.calm = m, false
		}
		p.nodes++
	case NodeDown, NodeNotice:
		p := w.pool(e.Node.Zone)
		if e.Kind == NodeDown {
			p.nodes--
		}
		p.since, p.calm = m, false
		w.interrupted = m
	}
}

// observe records the calm periods that have ended for the controller.
func (w *waits) observe(now moment) {
	for _, p := range w.pools {
		if p.nodes > 0 && !p.calm && !p.since.real.IsZero() && now.real.Sub(p.since.real) >= w.calm.real {
			p.calm = true
			w.periods = append(w.periods, now.at-p.since.at)
		}
	}
}

// ends returns the end of each wait. A replica of each workload returns after the calm period, and
// all others after the second one. No replica returns to a pool without nodes.
func (w *waits) ends() []moment {
	var ends []moment
	add := func(m moment, wait scaledTime, times time.Duration) {
		if !m.real.IsZero() {
			ends = append(ends, moment{m.at + times*wait.trace, m.real.Add(times * wait.real)})
		}
	}
	for _, p := range w.pools {
		if p.nodes > 0 {
			add(p.since, w.calm, 1)
			add(p.since, w.calm, 2)
		}
	}
	add(w.interrupted, w.pause, 1)
	return ends
}

// next returns the smallest rate, a whole number, at which no wait ends for the controller before
// it ends in the trace. If no wait is left the rate is 0. ended is the real time since the last
// wait ended.
func (w *waits) next(now moment) (rate float64, ended time.Duration) {
	ended = never
	for _, end := range w.ends() {
		if left := end.real.Sub(now.real); left > 0 {
			rate = max(rate, 1, math.Ceil(float64(end.at-now.at)/float64(left)))
		} else {
			ended = min(ended, -left)
		}
	}
	return rate, ended
}
