package main

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRates(t *testing.T) {
	// every returns n bindings at this interval, after the binding that starts the clock.
	every := func(n int, gap time.Duration) []time.Duration {
		times := []time.Duration{0}
		for i := range n {
			times = append(times, time.Duration(i+1)*gap)
		}
		return times
	}
	for name, test := range map[string]struct {
		bindings                   []time.Duration
		seconds, average, p50, p99 float64
	}{
		"less than two seconds":                {every(100, 10*time.Millisecond), 1, 100, 100, 100},
		"even rate":                            {every(40, 100*time.Millisecond), 4, 10, 10, 9.03},
		"a second without a binding":           {[]time.Duration{0, 1, 2, 3e9, 3e9}, 3, 4.0 / 3, 0, 0},
		"bindings after the last whole second": {[]time.Duration{0, 5e8, 15e8, 16e8, 21e8, 22e8}, 2.2, 5 / 2.2, 1.5, 1.01},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1, 0)
			var bindings []time.Time
			for _, after := range test.bindings {
				bindings = append(bindings, start.Add(after))
			}
			seconds, average, p50, p99 := rates(bindings)
			got, want := []float64{seconds, average, p50, p99}, []float64{test.seconds, test.average, test.p50, test.p99}
			if diff := cmp.Diff(want, got, nearly); diff != "" {
				t.Errorf("seconds, average, p50, p99: (-want +got)\n%s", diff)
			}
		})
	}
}

var nearly = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
