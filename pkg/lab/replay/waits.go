package replay

import "time"

// scaledTime is a duration of the trace, and the real time that a program is configured to wait for
// it.
type scaledTime struct{ trace, real time.Duration }

// moment is a moment in the trace and in real time.
type moment struct {
	at   time.Duration
	real time.Time
}

// waits follows the times for which the controller waits before it returns replicas to spot. The
// controller measures them in real time, while the rate of the clock changes and idle time is
// skipped. So the driver adapts the rate such that each wait ends in the trace when it ends for the
// controller.
type waits struct {
	calm, pause scaledTime
	// pools contains since when each pool has been calm: since its last notice or removal, or since
	// it got its first node. nodes is the number of its nodes.
	pools map[string]moment
	nodes map[string]int
	// interrupted is the time of the last notice or removal of a node.
	interrupted moment
}

func newWaits(calm, pause scaledTime) *waits {
	return &waits{calm: calm, pause: pause, pools: map[string]moment{}, nodes: map[string]int{}}
}

// event records an event of the timeline at a real time.
func (w *waits) event(e Event, now time.Time) {
	m, zone := moment{e.At, now}, e.Node.Zone
	switch e.Kind {
	case NodeUp:
		if w.nodes[zone] == 0 {
			w.pools[zone] = m
		}
		w.nodes[zone]++
	case NodeDown:
		w.nodes[zone]--
		w.pools[zone], w.interrupted = m, m
	case NodeNotice:
		w.pools[zone], w.interrupted = m, m
	}
}

// ends returns the end of each wait. A replica of each workload returns after the calm period, and
// all others after the second one.
func (w *waits) ends() []moment {
	var ends []moment
	add := func(m moment, wait scaledTime, times time.Duration) {
		if !m.real.IsZero() {
			ends = append(ends, moment{m.at + times*wait.trace, m.real.Add(times * wait.real)})
		}
	}
	for _, m := range w.pools {
		add(m, w.calm, 1)
		add(m, w.calm, 2)
	}
	add(w.interrupted, w.pause, 1)
	return ends
}

// next returns the rate at which the trace reaches the end of the next wait when the controller
// does. Without a next wait the rate is 0, and ended is the real time since the last one ended.
func (w *waits) next(now moment) (rate float64, ended time.Duration) {
	nearest := never
	ended = never
	for _, end := range w.ends() {
		left := end.real.Sub(now.real)
		switch {
		case left <= 0:
			ended = min(ended, -left)
		case left < nearest:
			nearest = left
			rate = max(1, float64(end.at-now.at)/float64(left))
		}
	}
	return rate, ended
}
