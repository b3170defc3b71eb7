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

func TestQuantile(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		q      float64
		want   float64
	}{
		"one value":       {[]float64{3}, 0.5, 3},
		"odd":             {[]float64{9, 1, 5}, 0.5, 5},
		"even":            {[]float64{4, 1, 2, 3}, 0.5, 2.5},
		"smallest":        {[]float64{4, 1, 2}, 0, 1},
		"largest":         {[]float64{4, 1, 2}, 1, 4},
		"between the two": {[]float64{0, 100}, 0.99, 99},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quantile(test.values, test.q); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("got %g, want %g", got, test.want)
			}
		})
	}
}

// The ratio of the medians would be 1 here: a slow round would hide that one side is twice as fast
// in it.
func TestPairedRatio(t *testing.T) {
	got := pairedRatio([]float64{200, 20, 100}, []float64{100, 10, 200})
	if want := (Range{Median: 2, Min: 0.5, Max: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRangeText(t *testing.T) {
	for want, r := range map[string]Range{"5 [4-7]": {5, 4, 7}, "5": {5, 4.9, 5.1}} {
		if got := r.text("%.0f"); got != want {
			t.Errorf("%+v: got %q, want %q", r, got, want)
		}
	}
}

var nearly = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
