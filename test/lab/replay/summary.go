package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RunSeeds runs the replay once for each seed, each in a folder of its own such as seed-1, and
// writes summary.md with the spread of the figures. Invalid options and inputs are an error before
// the first replay. After a seed fails, the others still run unless ctx has ended.
func RunSeeds(ctx context.Context, options Options, seeds []uint64) error {
	folder := options.Folder
	var runners []*runner
	for _, seed := range seeds {
		options.Settings.Seed = seed
		options.Folder = filepath.Join(folder, fmt.Sprintf("seed-%d", seed))
		r, err := newRunner(options)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		runners = append(runners, r)
	}
	var failed []error
	var reports []*Report
	for _, r := range runners {
		if ctx.Err() != nil {
			break
		}
		if err := r.run(ctx); err != nil {
			failed = append(failed, fmt.Errorf("seed %d: %w", r.plan.Settings.Seed, err))
		}
		reports = append(reports, r.report)
		if err := os.WriteFile(filepath.Join(folder, "summary.md"), []byte(Summary(reports)), 0o644); err != nil {
			return errors.Join(append(failed, fmt.Errorf("writing summary.md: %w", err))...)
		}
	}
	return errors.Join(failed...)
}

// summaryFigures are the columns of a summary. A figure of a partial arm does not count, and one
// that is no number is missing.
var summaryFigures = []struct {
	title, format string
	value         func(r *Report, a ArmResult) float64
}{
	{"above the bound, %", "%.1f", func(r *Report, a ArmResult) float64 { return 100 * (ratio(a.PodHoursCost, r.Bound.PodHoursCost) - 1) }},
	{"below all on-demand by pods, %", "%.1f", func(r *Report, a ArmResult) float64 {
		return 100 * (1 - ratio(a.PodHoursCost, r.Bound.AllOnDemandPodHoursCost))
	}},
	{"below all on-demand by nodes, %", "%.0f", func(r *Report, a ArmResult) float64 { return 100 * r.savedNodes(a) }},
	{"node-hours, $", "%.2f", func(_ *Report, a ArmResult) float64 { return a.NodeHoursCost }},
	{"on spot, %", "%.1f", func(_ *Report, a ArmResult) float64 { return 100 * a.SpotShare }},
	{"ready, %", "%.3f", func(_ *Report, a ArmResult) float64 { return 100 * a.ReadyShare }},
	{"outages", "%.0f", func(_ *Report, a ArmResult) float64 { return float64(a.Outages) }},
	{"outage time, s", "%.0f", func(_ *Report, a ArmResult) float64 { return a.OutageSeconds }},
	{"below floor, s", "%.0f", func(_ *Report, a ArmResult) float64 { return a.BelowFloorSeconds }},
	{"below budget, s", "%.0f", func(_ *Report, a ArmResult) float64 { return a.BelowBudgetSeconds }},
	{"largest loss", "%.0f", func(_ *Report, a ArmResult) float64 { return float64(a.LargestLoss) }},
	{"moves", "%.0f", func(_ *Report, a ArmResult) float64 { return float64(a.Moves) }},
	{"deleted at deadline", "%.0f", func(_ *Report, a ArmResult) float64 { return float64(a.DeletedAtDeadline) }},
	{"pods lost", "%.0f", func(_ *Report, a ArmResult) float64 { return float64(a.LostPods) }},
}

// savedNodes returns the share that the nodes of an arm cost less than with all replicas on
// on-demand. It is no number if that was not replayed with the same plan.
func (r *Report) savedNodes(a ArmResult) float64 {
	if all := r.Arm("on-demand"); all != nil && !all.Partial {
		return 1 - ratio(a.NodeHoursCost, all.NodeHoursCost)
	}
	return math.NaN()
}

// Summary returns a Markdown page with the mean and the range of the figures of several replays,
// for each arm.
func Summary(reports []*Report) string {
	var b strings.Builder
	b.WriteString("# Summary\n\n")
	for _, r := range reports {
		fmt.Fprintf(&b, "- %s, seed %d: %s from %s, %d services, up to %d pods and %d spot nodes, %d nodes removed\n",
			r.Dataset, r.Seed, duration(r.WindowLength), duration(r.FromSeconds), r.Services, r.Pods, r.SpotNodes, len(r.Victims))
		for _, warning := range r.warnings() {
			fmt.Fprintf(&b, "  - **%s**\n", warning)
		}
	}
	b.WriteString("\nEach figure is the mean, with the smallest and the largest value. A partial arm does not count.\n\n")
	return b.String() + markdownTable(summaryHeader(), append(summaryRows(reports), boundRow(reports)))
}

// summaryHeader returns the header of the rows of summaryRows.
func summaryHeader() []string {
	header := []string{"arm"}
	for _, f := range summaryFigures {
		header = append(header, f.title)
	}
	return header
}

// summaryRows returns a row for each arm that at least one report contains.
func summaryRows(reports []*Report) [][]string {
	var rows [][]string
	for _, arm := range Arms {
		cells := []string{arm.Name}
		found := false
		for _, f := range summaryFigures {
			var values []float64
			for _, r := range reports {
				a := r.Arm(arm.Name)
				if a == nil || a.Partial {
					continue
				}
				found = true
				if value := f.value(r, *a); !math.IsNaN(value) {
					values = append(values, value)
				}
			}
			cells = append(cells, spread(f.format, values))
		}
		if found {
			rows = append(rows, cells)
		}
	}
	return rows
}

// boundRow returns the row of the bound: a placement with its costs and no events.
func boundRow(reports []*Report) []string {
	cells := []string{"bound"}
	for _, f := range summaryFigures[:2] { // the costs
		var values []float64
		for _, r := range reports {
			values = append(values, f.value(r, ArmResult{Result: Result{Figures: Figures{PodHoursCost: r.Bound.PodHoursCost}}}))
		}
		cells = append(cells, spread(f.format, values))
	}
	return append(cells, make([]string, len(summaryFigures)-2)...)
}

// spread returns the mean and, if the values differ, their range.
func spread(format string, values []float64) string {
	if len(values) == 0 {
		return ""
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	text := func(v float64) string {
		if rounded := fmt.Sprintf(format, v); strings.Trim(rounded, "-0.") != "" {
			return rounded
		}
		return fmt.Sprintf(format, 0.0) // not -0.0
	}
	low, high, mean := text(slices.Min(values)), text(slices.Max(values)), text(sum/float64(len(values)))
	if low == high {
		return mean
	}
	return fmt.Sprintf("%s (%s to %s)", mean, low, high)
}
