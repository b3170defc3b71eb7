package frame

import (
	"math"
	"testing"
)

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
			if got := Quantile(test.values, test.q); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("got %g, want %g", got, test.want)
			}
		})
	}
}

// The ratio of the medians would be 1 here: a slow round would hide that one side is twice as fast
// in it.
func TestPairedRatio(t *testing.T) {
	got := PairedRatio([]float64{200, 20, 100}, []float64{100, 10, 200})
	if want := (Range{Median: 2, Min: 0.5, Max: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRangeText(t *testing.T) {
	for want, r := range map[string]Range{"5 [4-7]": {5, 4, 7}, "5": {5, 4.9, 5.1}} {
		if got := r.Text("%.0f"); got != want {
			t.Errorf("%+v: got %q, want %q", r, got, want)
		}
	}
}
