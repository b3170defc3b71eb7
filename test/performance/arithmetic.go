package main

import (
	"slices"
	"time"
)

// rates returns the time from the first binding to the last in seconds, and the average bindings
// per second in that time. p50 and p99 are the rates that 50 % and 99 % of the whole seconds since
// the first binding reached. With less than two whole seconds both are the average.
func rates(bindings []time.Time) (seconds, average, p50, p99 float64) {
	start, end := bindings[0], bindings[len(bindings)-1]
	elapsed := end.Sub(start)
	// The first binding starts the clock, because its own work happened before.
	seconds = elapsed.Seconds()
	average = float64(len(bindings)-1) / seconds
	perSecond := make([]float64, elapsed/time.Second)
	if len(perSecond) < 2 {
		return seconds, average, average, average
	}
	for _, at := range bindings[1:] {
		if second := int(at.Sub(start) / time.Second); second < len(perSecond) {
			perSecond[second]++
		}
	}
	return seconds, average, quantile(perSecond, 0.5), quantile(perSecond, 0.01)
}

// quantile returns the q-quantile of at least one value, interpolated between its neighbours.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Range is the median, the minimum and the maximum of some figures.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func rangeOf(values []float64) Range {
	return Range{quantile(values, 0.5), slices.Min(values), slices.Max(values)}
}

// pairedRatio returns the range of a[i]/b[i]. Each pair was measured in the same round, at most
// minutes apart. A machine that is slow for longer affects both figures of a pair.
func pairedRatio(a, b []float64) Range {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return rangeOf(ratios)
}
