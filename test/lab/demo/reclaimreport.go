package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// verdict returns nil if the project kept its guarantees, and otherwise an error with the broken
// guarantees.
func (r reclaimed) verdict() error {
	var broken []string
	for _, w := range workloads {
		switch lowest := r.Outages[w.name].Lowest; {
		case lowest < w.floor:
			broken = append(broken, fmt.Sprintf("%s fell below its floor (%d of %d)", w.name, lowest, w.floor))
		case lowest < w.minAvailable:
			broken = append(broken, fmt.Sprintf("%s fell below its PodDisruptionBudget (%d of %d)", w.name, lowest, w.minAvailable))
		}
	}
	if len(r.Stranded) > 0 {
		broken = append(broken, "pods were deleted with their nodes: "+each(r.Stranded))
	}
	if len(r.Misplaced) > 0 {
		broken = append(broken, fmt.Sprintf("on-demand had too many or too few replicas %s after the pool was recreated: %s",
			seconds(r.Back), each(r.Misplaced)))
	}
	if broken != nil {
		return fmt.Errorf("with spot-controller: %s", strings.Join(broken, "; "))
	}
	return nil
}

// write prints the report in at most 100 columns.
func (r reclaimed) write(out io.Writer, color bool) {
	p := page{out, color}
	p.line("")
	p.line(" %s", p.paint(bold, fmt.Sprintf("%.0f minutes' notice for the %d nodes of %s, with spot-controller",
		notice.Minutes(), len(r.Pool), poolName(r.Pool))))
	p.line("")
	r.writeExits(p)
	r.writeCosts(p)
	p.line("")
	r.writeFindings(p)
	p.line("")
	p.line(" Events (kubectl get events -A), one of each kind, with the number of nodes or pods that have it:")
	for _, e := range slices.Concat(r.OnNotice, r.OnReturn) {
		p.paragraph("", fmt.Sprintf("%s (%d), %s: %s", e.Reason, e.Objects, e.Object, e.Note))
	}
	p.line("")
	for _, text := range r.method() {
		p.paragraph(dim, text)
	}
}

// writeExits writes a table with the ways the pods of each workload left the pool.
func (r reclaimed) writeExits(p page) {
	bar := p.paint(dim, "│")
	p.line(" %-16s %-11s %9s %7s %s %-20s %9s %s %6s", "workload", "", "floor", "budget", bar, "left the pool", "gone after", bar, "lowest")
	p.line("%s", p.paint(dim, strings.Repeat("─", 47)+"┼"+strings.Repeat("─", 33)+"┼"+strings.Repeat("─", 12)))
	for _, w := range workloads {
		left := slices.DeleteFunc(slices.Clone(r.Left), func(at exit) bool { return at.Workload != w.name })
		budget, how, after := "-", "-", "-"
		if w.minAvailable > 0 {
			budget = fmt.Sprint(w.minAvailable)
		}
		if len(left) > 0 {
			how, after = methodCounts(left), seconds(left[len(left)-1].At.Sub(r.Notice))
		}
		if n := r.Stranded[w.name]; n > 0 {
			how, after = strings.TrimPrefix(fmt.Sprintf("%s, %d never", how, n), "-, "), "-"
		}
		lowest, style := r.Outages[w.name].Lowest, green
		if lowest < max(w.floor, w.minAvailable) {
			style = red
		}
		p.line(" %-16s %-11s %9s %7s %s %-20s %10s %s %s", w.name, w.kind, fmt.Sprintf("%d of %d", w.floor, w.replicas), budget,
			bar, how, after, bar, p.paint(style, fmt.Sprintf("%6d", lowest)))
	}
	p.line("")
}

// writeCosts writes the distribution of the services' replicas and their cost in the three phases
// of the act.
func (r reclaimed) writeCosts(p page) {
	bar := p.paint(dim, "│")
	row := func(title string, text func(t totals) string) {
		cells := []string{fmt.Sprintf(" %-46s", title)}
		for _, part := range []map[string]result{r.Before, r.During, r.After} {
			cells = append(cells, fmt.Sprintf(" %-14s", text(sum(services(), part))))
		}
		p.line("%s", strings.TrimRight(strings.Join(cells, bar), " "))
	}
	p.line(" %-46s%s %-14s%s %-14s%s %s", "", bar, "before", bar, "pool deleted", bar, "pool recreated")
	row("replicas of services on spot", func(t totals) string { return fmt.Sprintf("%d of %d", t.onSpot, t.replicas) })
	row(fmt.Sprintf("their cost per hour (all on-demand: $%.2f)", r.AllOnDemandUSD), func(t totals) string {
		return fmt.Sprintf("$%.2f", t.hourUSD)
	})
	for _, part := range []map[string]result{r.Before, r.During, r.After} {
		if t := sum(services(), part); t.placed != t.replicas {
			row("their replicas without a node, at no cost", func(t totals) string { return fmt.Sprint(t.replicas - t.placed) })
			break
		}
	}
}

// writeFindings writes a summary of the tables.
func (r reclaimed) writeFindings(p page) {
	if n := count(r.Stranded); n > 0 {
		p.paragraph(red, fmt.Sprintf("%d pods were still on the nodes at the deadline.", n))
	} else {
		p.paragraph(green, fmt.Sprintf("All %d pods left the pool: %s. The last left %s after the notice, %s before the deadline.",
			len(r.Left), methodCounts(r.Left), seconds(r.emptyAfter()), seconds(notice-r.emptyAfter())))
	}
	home, gap := true, false
	for _, name := range r.FellBack {
		home = home && r.After[name].OnSpot == 0
		gap = gap || r.Outages[name].Lowest == 0
	}
	text := fmt.Sprintf("%s had fallen back to spot, because on-demand was cordoned until %s after the notice", list(r.FellBack), upgrade)
	style := green
	switch {
	case gap:
		text, style = text+"; at least one had no ready replica at some moment.", red
	case home:
		text += ". They always had a ready replica, and now run on on-demand, which costs more."
	default:
		text += ". They always had a ready replica."
	}
	p.paragraph(style, text)
	if n := count(r.Misplaced); n > 0 {
		p.paragraph(red, fmt.Sprintf("%s after the pool was recreated, on-demand runs %d replicas too many or too few.", seconds(r.Back), n))
	} else {
		p.paragraph(green, fmt.Sprintf("%s after the pool was recreated, on-demand runs exactly the floors. Back to spot: %s.",
			seconds(r.Back), methodCounts(r.Returned)))
	}
}

// method describes the measurement.
func (r reclaimed) method() []string {
	return []string{
		"surge: the pod was evicted when its replacement was ready. evict: it was evicted earlier, as in StatefulSets and Jobs, within " +
			"its budget (PodDisruptionBudget, minAvailable). delete: it was deleted regardless of the budget, at the deadline.",
		"lowest: the fewest ready replicas that a watch reported from the notice to the end. The Job is batch, which may be interrupted: " +
			"the Job controller waits before it recreates a pod, and the new pod stays on its node.",
		fmt.Sprintf("A replacement for a pod on the pool takes %.0f s to start. To save time, the pods that return take %.0f s, the demo "+
			"deletes the nodes when they are empty, shortens times of the controller to %s (shipped: %s), and lets the singletons "+
			"fall back after %s.",
			podStartup.Seconds(), quickStartup.Seconds(), calm, strings.Join(r.Shortened, ", "), fallbackAfter),
	}
}

// methodCounts counts pods by the method by which they left: "3 surge, 1 evict".
func methodCounts(left []exit) string {
	var parts []string
	for _, method := range []migration.Method{migration.Surge, migration.Evict, migration.Delete} {
		n := 0
		for _, record := range left {
			if record.Method == method {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, method))
		}
	}
	return strings.Join(parts, ", ")
}

// each lists workloads with their numbers: "kafka (1), login (2)".
func each(numbers map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", name, numbers[name]))
	}
	return strings.Join(parts, ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
