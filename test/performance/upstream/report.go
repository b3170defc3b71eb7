package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// Names of the profiles in the report.
const (
	stock   = "default"
	shipped = "shipped"
)

// result is the result of a workload in all rounds.
type result struct {
	workload workload
	failed   bool
	// rates and cpu contain, by profile, the pods per second and the CPU seconds of each round.
	rates, cpu map[string][]float64
}

// report prints one line for each workload.
func report(w io.Writer, results []*result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "workload\t%s pods/s\t%s pods/s\tratio\trange\tCPU ratio\trange\trounds\n", stock, shipped)
	for _, r := range results {
		fmt.Fprintln(table, r.line())
	}
	table.Flush()
}

// line returns the medians, and the ratios of the shipped profile to the default profile in the
// same round, with their ranges.
func (r *result) line() string {
	name, a, b := r.workload.String(), r.rates[stock], r.rates[shipped]
	switch {
	case r.failed:
		return name + "\tfailed"
	case slices.Contains(a, 0) || slices.Contains(b, 0):
		return name + "\tpasses, too short to be measured"
	}
	return fmt.Sprintf("%s\t%.0f\t%.0f\t%s\t%s\t%d",
		name, frame.Quantile(a, 0.5), frame.Quantile(b, 0.5), ratio(b, a), ratio(r.cpu[shipped], r.cpu[stock]), len(a))
}

// ratio returns the median of the ratios of a to b in the same round, and their range.
func ratio(a, b []float64) string {
	r := frame.PairedRatio(a, b)
	return fmt.Sprintf("%.3f\t%.3f to %.3f", r.Median, r.Min, r.Max)
}
