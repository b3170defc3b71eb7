package main

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
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
	return seconds, average, frame.Quantile(perSecond, 0.5), frame.Quantile(perSecond, 0.01)
}
