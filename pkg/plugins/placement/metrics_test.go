package placement

import (
	"testing"
	"testing/synctest"
	"time"
)

// Metrics that are asked for all the time do not make the scheduler look at all pods all the time.
func TestObservedIsNotAlwaysLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		o := &observed{observe: func() Observed {
			looks++
			time.Sleep(10 * time.Millisecond)
			return Observed{FloorDeficit: looks}
		}}
		for range 25 {
			if got := o.now(); got.FloorDeficit != looks {
				t.Errorf("told of look %d, want the last one, %d", got.FloorDeficit, looks)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// The first takes 10 ms, so the next comes 1 s after it began, and so on, for 2.5 s.
		if looks != 3 {
			t.Errorf("looked %d times, want 3", looks)
		}
	})
}
