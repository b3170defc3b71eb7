package replay

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	begin := time.Unix(1000, 0)
	after := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	c := NewClock(begin, 0)
	check := func(real time.Time, want time.Duration) {
		t.Helper()
		if got := c.At(real); got != want {
			t.Errorf("after %s: %s, want %s", real.Sub(begin), got, want)
		}
	}
	check(after(5), 0) // it is stopped
	c.SetRate(after(5), 10)
	check(after(7), 20*time.Second)
	c.Jump(after(7), time.Hour)
	check(after(8), time.Hour+10*time.Second)
	check(after(6), 10*time.Second) // an event that arrived before the jump
	c.SetRate(after(8), 300)
	check(after(9), time.Hour+310*time.Second)
	c.Jump(after(9), time.Minute) // no effect
	check(after(9), time.Hour+310*time.Second)
	check(after(-1), 0)
	if got, want := c.Skipped(), time.Hour-20*time.Second; got != want {
		t.Errorf("skipped %s, want %s", got, want)
	}
	for i := range 1000 {
		c.SetRate(after(10+float64(i)), float64(1+i%2))
	}
	if len(c.segments) > maxSegments {
		t.Errorf("%d segments", len(c.segments))
	}
}
