package decision_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestLosses(t *testing.T) {
	const halfLife = time.Hour
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		ages          []time.Duration
		wantRisk      float64
		wantForgotten bool
	}{
		"none":                          {nil, 0, true},
		"just now":                      {[]time.Duration{0}, 0.5, false},
		"two just now":                  {[]time.Duration{0, 0}, 0.75, false},
		"two a half-life ago":           {[]time.Duration{halfLife, halfLife}, 0.5, false},
		"in the future":                 {[]time.Duration{-halfLife}, 0.5, false},
		"four two half-lives ago":       {[]time.Duration{2 * halfLife, 2 * halfLife, 2 * halfLife, 2 * halfLife}, 0.5, false},
		"just under ten half-lives ago": {[]time.Duration{10*halfLife - 10}, 1 - math.Exp2(-math.Exp2(-10)), false},
		"ten half-lives ago":            {[]time.Duration{10 * halfLife}, 1 - math.Exp2(-math.Exp2(-10)), true},
		"an old one and a new one":      {[]time.Duration{20 * halfLife, 0}, 0.5, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var losses decision.Losses
			for _, age := range test.ages {
				losses = losses.Add(1, now.Add(-age), halfLife)
			}
			if got := losses.Risk(now, halfLife); math.Abs(got-test.wantRisk) > 1e-6 {
				t.Errorf("risk %v, want %v", got, test.wantRisk)
			}
			if got := losses.Expired(now, halfLife); got != test.wantForgotten {
				t.Errorf("forgotten: %t, want %t", got, test.wantForgotten)
			}
		})
	}
}

// The single stored number equals the sum over all losses, for every order of additions and any
// number of reads in between.
func TestLossesAddUp(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		halfLife := time.Duration(rapid.Int64Range(1, int64(1000*time.Hour)).Draw(t, "halfLife"))
		// In half-lives, so that some losses have decayed and some have not.
		at := rapid.SliceOfN(rapid.Float64Range(0, 12), 0, decision.MaxLosses).Draw(t, "at")
		now := start.Add(time.Duration(rapid.Float64Range(12, 14).Draw(t, "now") * float64(halfLife)))
		var losses decision.Losses
		want := 0.0
		for _, half := range at {
			lost := start.Add(time.Duration(half * float64(halfLife)))
			losses = losses.Add(1, lost, halfLife)
			want += math.Exp2(-float64(now.Sub(lost)) / float64(halfLife))
		}
		if withdrawn := start.Add(time.Duration(rapid.Float64Range(0, 12).Draw(t, "withdrawn") * float64(halfLife))); len(at) < decision.MaxLosses {
			losses = losses.Add(1, withdrawn, halfLife).Add(-1, withdrawn, halfLife)
		}
		if got := losses.Weight(now, halfLife); math.Abs(got-want) > 1e-9*max(1, want) {
			t.Fatalf("%v, want the sum %v", got, want)
		}
		if got, want := losses.Risk(now, halfLife), 1-math.Exp2(-want); math.Abs(got-want) > 1e-9 {
			t.Fatalf("risk %v, want %v", got, want)
		}
	})
}

// A pool that loses thousands of nodes at once is forgotten as soon as a pool that lost MaxLosses.
func TestLossesAreLimited(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var losses decision.Losses
	for range 5_000 {
		losses = losses.Add(1, now, time.Hour)
	}
	if got := losses.Weight(now, time.Hour); got != decision.MaxLosses {
		t.Errorf("%v, want %v", got, decision.MaxLosses)
	}
}
