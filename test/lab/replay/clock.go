package replay

import (
	"sync"
	"time"
)

// Clock converts real time to times of the trace. It is the only place that does. Its rate is the
// number of trace seconds per real second. Jump skips idle time. A Clock is safe for concurrent
// use.
type Clock struct {
	mu       sync.Mutex
	segments []segment // sorted by time; the last one applies now
	skipped  time.Duration
}

// segment is a period with a constant rate.
type segment struct {
	real time.Time
	at   time.Duration
	rate float64
}

// NewClock returns a clock that shows 0 and has this rate, from the real time now on. A rate of 0
// stops the clock.
func NewClock(now time.Time, rate float64) *Clock {
	return &Clock{segments: []segment{{real: now, rate: rate}}}
}

// At returns the time of the trace at a real time. A real time before the oldest known segment
// counts as the start of that segment.
func (c *Clock) At(real time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(real)
}

func (c *Clock) at(real time.Time) time.Duration {
	for i := len(c.segments) - 1; i >= 0; i-- {
		s := c.segments[i]
		if !real.Before(s.real) {
			return s.at + time.Duration(float64(real.Sub(s.real))*s.rate)
		}
	}
	return c.segments[0].at
}

// SetRate changes the rate from the real time now on.
func (c *Clock) SetRate(now time.Time, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.segments[len(c.segments)-1].rate != rate {
		c.add(segment{real: now, at: c.at(now), rate: rate})
	}
}

// Jump sets the clock to a later time of the trace. An earlier time has no effect.
func (c *Clock) Jump(now time.Time, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.at(now)
	if to <= current {
		return
	}
	c.skipped += to - current
	c.add(segment{real: now, at: to, rate: c.segments[len(c.segments)-1].rate})
}

// maxSegments limits the memory of a long replay. Events arrive within seconds, so older segments
// are not needed.
const maxSegments = 64

func (c *Clock) add(s segment) {
	c.segments = append(c.segments, s)
	if len(c.segments) > maxSegments {
		c.segments = c.segments[1:]
	}
}

// Real returns the real time in which the current rate reaches a time of the trace; 0 if it has
// passed.
func (c *Clock) Real(now time.Time, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	rate := c.segments[len(c.segments)-1].rate
	if left := to - c.at(now); left > 0 && rate > 0 {
		return time.Duration(float64(left) / rate)
	} else if left > 0 {
		return never
	}
	return 0
}

// Skipped returns the trace time that jumps have skipped.
func (c *Clock) Skipped() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skipped
}
