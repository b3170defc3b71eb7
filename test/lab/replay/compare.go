package replay

import (
	"fmt"
	"math"
	"strings"
)

// Compare returns a Markdown page with the figures of two reports and their differences, for every
// arm of both. It names the parameters in which the reports differ.
func Compare(before, after *Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Comparison of two replays of %s\n\n", before.Dataset)
	for _, w := range before.warnings() {
		fmt.Fprintf(&b, "**First report: %s**\n\n", w)
	}
	for _, w := range after.warnings() {
		fmt.Fprintf(&b, "**Second report: %s**\n\n", w)
	}
	differences := parameterDifferences(before, after)
	if len(differences) == 0 {
		b.WriteString("The parameters are equal.\n\n")
	} else {
		b.WriteString("| parameter | first | second |\n|---|---|---|\n")
		for _, d := range differences {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", d[0], d[1], d[2])
		}
		b.WriteString("\n")
	}
	b.WriteString("| arm | figure | first | second | change |\n|---|---|---|---|---|\n")
	row := func(arm, name string, x, y float64) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", arm, name, number(x), number(y), change(x, y))
	}
	for _, x := range before.Arms {
		y := after.Arm(x.Name)
		if y == nil {
			fmt.Fprintf(&b, "| %s | | | not in the second report | |\n", x.Name)
			continue
		}
		for _, f := range figures {
			row(x.Name, f.name, f.value(x.Result), f.value(y.Result))
		}
	}
	for _, y := range after.Arms {
		if before.Arm(y.Name) == nil {
			fmt.Fprintf(&b, "| %s | | not in the first report | | |\n", y.Name)
		}
	}
	row("bound", "podHoursCost", before.Bound.PodHoursCost, after.Bound.PodHoursCost)
	return b.String()
}

// figures are the compared figures.
var figures = []struct {
	name  string
	value func(Result) float64
}{
	{"podHoursCost", func(r Result) float64 { return r.PodHoursCost }},
	{"nodeHoursCost", func(r Result) float64 { return r.NodeHoursCost }},
	{"spotShare", func(r Result) float64 { return r.SpotShare }},
	{"readyShare", func(r Result) float64 { return r.ReadyShare }},
	{"outages", func(r Result) float64 { return float64(r.Outages) }},
	{"outageSeconds", func(r Result) float64 { return r.OutageSeconds }},
	{"belowFloorSeconds", func(r Result) float64 { return r.BelowFloorSeconds }},
	{"belowBudgetSeconds", func(r Result) float64 { return r.BelowBudgetSeconds }},
	{"exposedSeconds", func(r Result) float64 { return r.ExposedSeconds }},
	{"evictions", func(r Result) float64 { return float64(r.Evictions) }},
	{"moves", func(r Result) float64 { return float64(r.Moves) }},
	{"largestLoss", func(r Result) float64 { return float64(r.LargestLoss) }},
	{"deletedAtDeadline", func(r Result) float64 { return float64(r.DeletedAtDeadline) }},
	{"lostPods", func(r Result) float64 { return float64(r.LostPods) }},
	{"pendingSeconds", func(r Result) float64 { return r.PendingSeconds }},
}

// parameterDifferences returns the parameters with different values: name, first and second value.
func parameterDifferences(x, y *Report) [][3]string {
	var differences [][3]string
	add := func(name string, a, b any) {
		if a != b {
			differences = append(differences, [3]string{name, fmt.Sprint(a), fmt.Sprint(b)})
		}
	}
	add("dataset", x.Dataset, y.Dataset)
	add("source", x.Source, y.Source)
	add("seed", x.Seed, y.Seed)
	add("from", duration(x.FromSeconds), duration(y.FromSeconds))
	add("window", duration(x.WindowLength), duration(y.WindowLength))
	add("notice", duration(x.NoticeSeconds), duration(y.NoticeSeconds))
	add("start-up", duration(x.StartupSeconds), duration(y.StartupSeconds))
	add("provisioning", duration(x.ProvisioningSeconds), duration(y.ProvisioningSeconds))
	add("scale", x.Scale, y.Scale)
	add("calm scale", x.CalmScale, y.CalmScale)
	add("instance type", x.InstanceType, y.InstanceType)
	add("node", x.Node, y.Node)
	add("recorded VMs per node", x.VMsPerNode, y.VMsPerNode)
	add("demand", x.Demand, y.Demand)
	add("services", x.Services, y.Services)
	add("pods", x.Pods, y.Pods)
	add("floor", x.Floor, y.Floor)
	add("budget", x.Budget, y.Budget)
	add("victims", strings.Join(x.Victims, " "), strings.Join(y.Victims, " "))
	settings := map[string][2]string{}
	for _, s := range x.ScaledSettings {
		settings[s.Name] = [2]string{s.Trace, ""}
	}
	for _, s := range y.ScaledSettings {
		settings[s.Name] = [2]string{settings[s.Name][0], s.Trace}
	}
	for _, name := range sortedKeys(settings) {
		add(name, settings[name][0], settings[name][1])
	}
	return differences
}

func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// change returns the relative change; the difference if the first value is 0.
func change(x, y float64) string {
	switch {
	case x == y:
		return "0"
	case x == 0:
		return fmt.Sprintf("%+.4g", y)
	}
	return fmt.Sprintf("%+.1f %%", 100*(y/x-1))
}
