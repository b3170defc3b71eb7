package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// armColumns are the first columns of the table of arms. The columns of figureColumns follow.
var armColumns = []struct {
	title string
	value func(r *Report, a ArmResult) string
}{
	{"cost, pod-hours", func(_ *Report, a ArmResult) string { return usd(a.PodHoursCost) }},
	{"above the bound", func(r *Report, a ArmResult) string { return r.aboveBound(a) }},
	{"below all on-demand", func(r *Report, a ArmResult) string { return r.saved(a) }},
	{"cost, node-hours", func(_ *Report, a ArmResult) string { return usd(a.NodeHoursCost) }},
}

// figureColumns are columns of the tables of arms and of services.
var figureColumns = []struct {
	title string
	value func(f Figures) string
}{
	{"on spot", func(f Figures) string { return percent(f.SpotShare) }},
	{"ready/desired", func(f Figures) string { return fmt.Sprintf("%.3f %%", 100*f.ReadyShare) }},
	{"outages", func(f Figures) string { return fmt.Sprint(f.Outages) }},
	{"outage time", func(f Figures) string { return span(f.OutageSeconds) }},
	{"below floor", func(f Figures) string { return span(f.BelowFloorSeconds) }},
	{"below budget", func(f Figures) string { return span(f.BelowBudgetSeconds) }},
	{"exposed", func(f Figures) string { return span(f.ExposedSeconds) }},
	{"largest loss", func(f Figures) string { return fmt.Sprint(f.LargestLoss) }},
	{"evictions", func(f Figures) string { return fmt.Sprint(f.Evictions) }},
	{"moves", func(f Figures) string { return fmt.Sprint(f.Moves) }},
	{"deleted at deadline", func(f Figures) string { return fmt.Sprint(f.DeletedAtDeadline) }},
	{"pods lost", func(f Figures) string { return fmt.Sprint(f.LostPods) }},
	{"pending", func(f Figures) string { return span(f.PendingSeconds) }},
}

// figureTitles returns the titles of figureColumns.
func figureTitles() []string {
	var titles []string
	for _, c := range figureColumns {
		titles = append(titles, c.title)
	}
	return titles
}

// cells returns the values of figureColumns.
func (f Figures) cells() []string {
	var cells []string
	for _, c := range figureColumns {
		cells = append(cells, c.value(f))
	}
	return cells
}

// explanations explain the columns that are not obvious.
var explanations = []string{
	"above the bound: with the range of 95 % of a block bootstrap. An arm below the bound violates floors, or its pods wait.",
	"cost, pod-hours: the larger of a pod's shares of CPU and memory of its node, while it is bound. Idle capacity is free.",
	"cost, node-hours: all nodes, including idle ones. Spot nodes exist whenever the trace has them.",
	"below floor, below budget: fewer ready replicas than the floor or the PodDisruptionBudget requires, in service-hours. " +
		"A replica that has not been ready since a scale-up is not missing. With a floor of 1, the time below the floor is the outage time.",
	"exposed: the loss of all spot would have violated the floor, in service-hours.",
	"largest loss: replicas of one service lost within ten seconds.",
	"moves: evictions, and pods that the controller deleted at the deadline. pods lost: they ran on a node when it vanished.",
}

// gapExplanations explain the columns of the second table.
var gapExplanations = []string{
	"replaced first: a pod and its replacement run at the same time. waiting pods: replicas that are not bound cost nothing.",
	"return within 15 min: replicas beyond the floor run on on-demand although spot has room, as during the calm period. no return: the " +
		"same, for longer.",
	"floor on spot: replicas on spot that the floor requires on on-demand.",
	"packing: the rest. The bound may split replicas over nodes, and may exchange replicas at any time.",
}

// gapTable returns the table of the reasons for costs above the bound, as shares of the bound.
func (r *Report) gapTable() (header []string, rows [][]string) {
	for _, a := range r.Arms {
		parts := r.gapParts(a)
		if len(parts) == 0 {
			continue
		}
		header = []string{"arm", "above the bound"}
		cells := []string{a.Name, fmt.Sprintf("%+.1f %%", 100*(a.PodHoursCost/r.Bound.PodHoursCost-1))}
		for _, part := range parts {
			header = append(header, part.reason)
			cells = append(cells, fmt.Sprintf("%+.1f %%", 100*part.usd/r.Bound.PodHoursCost))
		}
		rows = append(rows, cells)
	}
	return header, rows
}

// findings names what each arm lost because the notice was too short, the reasons of high costs,
// and the calm periods.
func (r *Report) findings() []string {
	var findings []string
	for _, a := range r.Arms {
		if late := a.DeletedAtDeadline + a.LostPods; late > 0 {
			findings = append(findings, fmt.Sprintf("%s: with a notice of %s, pods that did not leave their nodes in time: %d. Deleted at the "+
				"deadline: %d. "+
				"Lost with their nodes: %d. Time below the floor: %s. Time below the budget: %s.",
				a.Name, duration(r.NoticeSeconds), late, a.DeletedAtDeadline, a.LostPods, span(a.BelowFloorSeconds), span(a.BelowBudgetSeconds)))
		}
	}
	return append(append(findings, r.highCosts()...), r.calmPeriods()...)
}

// calmPeriods names the arms whose replicas returned to spot earlier than in a real cluster.
func (r *Report) calmPeriods() []string {
	var lines []string
	for _, a := range r.Arms {
		if c := a.CalmPeriods; c != nil && c.Short > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d calm periods were shorter in the trace than configured (%s), %s at least. A "+
				"smaller --calm-scale avoids this.",
				a.Name, c.Short, c.Count, findTime(r.ScaledSettings, calmPeriodPath).trace, span(c.ShortestSeconds)))
		}
	}
	return lines
}

// highCosts names the main reason of each arm with this project's policy that costs much more than
// the bound.
func (r *Report) highCosts() []string {
	var findings []string
	for _, arm := range Arms {
		a := r.Arm(arm.Name)
		if !arm.hasPolicy() || a == nil {
			continue
		}
		if part := r.mainReason(*a); part != nil {
			findings = append(findings, fmt.Sprintf("%s costs %.1f %% more than the bound. The main reason is %q, with %.1f %% of the bound.",
				a.Name, 100*(a.PodHoursCost/r.Bound.PodHoursCost-1), part.reason, 100*part.usd/r.Bound.PodHoursCost))
		}
	}
	return findings
}

func usd(v float64) string     { return fmt.Sprintf("$%.2f", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// span returns a number of seconds as a short duration.
func span(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case seconds < 120:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%.1f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// aboveBound returns how much more an arm costs than the bound, with the range of the bootstrap. It
// is empty for a partial arm, which covers another time than the bound.
func (r *Report) aboveBound(a ArmResult) string {
	if a.Partial || r.Bound.PodHoursCost == 0 {
		return ""
	}
	low, high := Bootstrap(r.costPairs(a), r.Seed)
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*(a.PodHoursCost/r.Bound.PodHoursCost-1), 100*(low-1), 100*(high-1))
}

// saved returns how much less an arm costs than all replicas on on-demand.
func (r *Report) saved(a ArmResult) string {
	if a.Partial || r.Bound.AllOnDemandPodHoursCost == 0 {
		return ""
	}
	return percent(1 - a.PodHoursCost/r.Bound.AllOnDemandPodHoursCost)
}

// table returns the header and the rows of the table of arms, the bound last.
func (r *Report) table() (header []string, rows [][]string) {
	header = []string{"arm"}
	for _, c := range armColumns {
		header = append(header, c.title)
	}
	header = append(header, figureTitles()...)
	for _, a := range r.Arms {
		name := a.Name
		if a.Partial {
			name += " (partial)"
		}
		if len(a.Broken) > 0 {
			name += " (BROKEN)"
		}
		cells := []string{name}
		for _, c := range armColumns {
			cells = append(cells, c.value(r, a))
		}
		rows = append(rows, append(cells, a.cells()...))
	}
	bound := make([]string, len(header))
	bound[0], bound[1] = "bound", usd(r.Bound.PodHoursCost)
	if r.Bound.AllOnDemandPodHoursCost > 0 {
		bound[3] = percent(1 - r.Bound.PodHoursCost/r.Bound.AllOnDemandPodHoursCost)
	}
	return header, append(rows, bound)
}

// facts describe how the report was made.
func (r *Report) facts() []string {
	facts := []string{
		fmt.Sprintf("Source: %s; dataset %s, %s from %s.", r.Source, r.Dataset, duration(r.WindowLength), duration(r.FromSeconds)),
		fmt.Sprintf("Notice %s, start-up of a pod %s, provisioning of a node %s, seed %d.",
			duration(r.NoticeSeconds), duration(r.StartupSeconds), duration(r.ProvisioningSeconds), r.Seed),
		fmt.Sprintf("%d services with up to %d pods. Replica counts are as recorded. CPU and memory of each replica are divided by %.4g, so "+
			"that the "+
			"largest counts request %.3g of the largest spot capacity.", r.Services, r.Pods, r.Divisor, r.Demand),
		fmt.Sprintf("Up to %d spot nodes, %d removed. A node represents up to %d recorded VMs. One on-demand node always exists. All nodes "+
			"have the shape and the prices of %s: %d milli-CPUs, %d MiB, $%.4g on-demand, $%.4g spot "+
			"(an estimate) per hour. The trace determines only when and how much capacity exists.",
			r.SpotNodes, len(r.Victims), r.VMsPerNode, r.InstanceType, r.Node.CPUMilli, r.Node.MemoryMiB, r.Node.OnDemandUSD, r.Node.SpotUSD),
		fmt.Sprintf("Floor %s, minAvailable of the budgets %s.", r.Floor, r.Budget),
		fmt.Sprintf("The bound is the cheapest placement at each moment that keeps every floor with the spot that exists. Replicas may be "+
			"split over "+
			"nodes. A placement of whole replicas costs %s.", usd(r.Bound.PackedPodHoursCost)),
		fmt.Sprintf("Time: 1 real second is %g s of the trace during notices, start-up and moves, and %g s while only the calm period is "+
			"awaited. Idle "+
			"time is skipped.", r.Scale, r.CalmScale),
	}
	if r.Created.IsZero() {
		return facts
	}
	return append(facts, fmt.Sprintf("%s on %s: `%s`.", r.Created.Format(time.RFC3339), r.Machine, r.Command))
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}

// shortestNotice is the shortest real notice within which the programs can act. The controller
// needs about a second for its first requests.
const shortestNotice = 2 * time.Second

// warnings are the reasons not to trust the figures.
func (r *Report) warnings() []string {
	var warnings []string
	if r.Partial {
		text := "PARTIAL: the replay did not finish."
		if r.Problem != "" {
			text += " " + strings.ReplaceAll(r.Problem, "\n", " ")
		}
		warnings = append(warnings, text)
	}
	if real := r.NoticeSeconds / r.Scale; r.NoticeSeconds > 0 && real < shortestNotice.Seconds() {
		warnings = append(warnings, fmt.Sprintf("The notice is only %.2g s in real time, which is too short for the programs. Use a "+
			"smaller --scale.", real))
	}
	warnings = append(warnings, r.Gaps...)
	for _, a := range r.Arms {
		if a.Partial {
			warnings = append(warnings, fmt.Sprintf("Arm %s covers %s of %s.", a.Name, duration(a.MeasuredSeconds), duration(r.WindowLength)))
		}
		for _, problem := range a.Broken {
			warnings = append(warnings, fmt.Sprintf("BROKEN: arm %s: %s.", a.Name, problem))
		}
	}
	return warnings
}

// markdownTable returns a table and an empty line.
func markdownTable(header []string, rows [][]string) string {
	var b strings.Builder
	writeRow := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	writeRow(header)
	writeRow(slices.Repeat([]string{"---"}, len(header)))
	for _, cells := range rows {
		writeRow(cells)
	}
	b.WriteString("\n")
	return b.String()
}

// Markdown returns report.md. plots is the Markdown that shows the plots.
func (r *Report) Markdown(plots string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Replay of %s\n\n", r.Dataset)
	for _, w := range r.warnings() {
		fmt.Fprintf(&b, "**%s**\n\n", w)
	}
	b.WriteString(markdownTable(r.table()))
	for _, a := range r.Arms {
		fmt.Fprintf(&b, "- **%s**: %s\n", a.Name, a.Title)
	}
	b.WriteString("\n" + plots)
	writeList := func(texts []string) {
		for _, text := range texts {
			fmt.Fprintf(&b, "- %s\n", text)
		}
	}
	writeList(explanations)
	if findings := r.findings(); len(findings) > 0 {
		b.WriteString("\n## Findings\n\n")
		writeList(findings)
	}
	if header, rows := r.gapTable(); len(rows) > 0 {
		b.WriteString("\n## Reasons for costs above the bound\n\n")
		b.WriteString(markdownTable(header, rows))
		writeList(gapExplanations)
	}
	for _, a := range r.Arms {
		fmt.Fprintf(&b, "\n## Services, %s\n\n", a.Name)
		b.WriteString(markdownTable(a.serviceTable()))
	}
	b.WriteString("\n## How it was measured\n\n")
	writeList(r.facts())
	for _, note := range r.Pools {
		fmt.Fprintf(&b, "- Pool %s (%s, %s): %s. %s\n", note.Pool, note.Kind, note.License, note.Source, note.Note)
	}
	b.WriteString("\n| setting | trace | real |\n|---|---|---|\n")
	for _, s := range r.ScaledSettings {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, s.Trace, s.Real)
	}
	return b.String()
}

// serviceTable returns the header and a row for each service of an arm.
func (a ArmResult) serviceTable() (header []string, rows [][]string) {
	for _, s := range a.Services {
		rows = append(rows, append([]string{s.Name, usd(s.PodHoursCost)}, s.cells()...))
	}
	return append([]string{"service", "cost, pod-hours"}, figureTitles()...), rows
}
