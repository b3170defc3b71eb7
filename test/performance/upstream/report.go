package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
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
	rates    map[string][]float64 // by profile: pods per second in each round
}

// report prints one line for each workload.
func report(w io.Writer, results []*result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "workload\t%s pods/s\t%s pods/s\tratio\trange\trounds\n", stock, shipped)
	for _, r := range results {
		fmt.Fprintln(table, r.line())
	}
	table.Flush()
}

// line returns the medians, and the ratios of the shipped profile to the default profile in the
// same round.
func (r *result) line() string {
	name, a, b := r.workload.String(), r.rates[stock], r.rates[shipped]
	switch {
	case r.failed:
		return name + "\tfailed"
	case slices.Contains(a, 0) || slices.Contains(b, 0):
		return name + "\tpasses, too short to be measured"
	}
	var ratios []float64
	for i := range a {
		ratios = append(ratios, b[i]/a[i])
	}
	return fmt.Sprintf("%s\t%.0f\t%.0f\t%.3f\t%.3f to %.3f\t%d",
		name, median(a), median(b), median(ratios), slices.Min(ratios), slices.Max(ratios), len(ratios))
}

// median returns the middle value, or the mean of the middle two. There must be at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
