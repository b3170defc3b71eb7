package profilemetrics

import (
	"testing"
	"testing/synctest"
	"time"
)

// Frequent scrapes must not make a program read all pods each time.
func TestObservationsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observations := 0
		current := limited(func() int {
			observations++
			time.Sleep(10 * time.Millisecond)
			return observations
		})
		for range 25 {
			if got := current(); got != observations {
				t.Errorf("values of observation %d, want the last one, %d", got, observations)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// An observation takes 10 ms, so the next one is due 1 s after it began. The test lasts 2.5
		// s.
		if observations != 3 {
			t.Errorf("observed %d times, want 3", observations)
		}
	})
}
