package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// report is the result of the first act.
type report struct {
	nodes          []lab.NodeSpec
	stock, ours    map[string]result
	allOnDemandUSD float64
}

// totals are sums over several workloads.
type totals struct {
	replicas, placed, onSpot int
	hourUSD                  float64
	withOutage               []string // services (workloads with a floor) that had no ready replica at some moment
}

func sum(these []workload, measured map[string]result) totals {
	var t totals
	for _, w := range these {
		r := measured[w.name]
		t.replicas += w.replicas
		t.placed += r.OnSpot + r.OnDemand
		t.onSpot += r.OnSpot
		t.hourUSD += r.HourUSD
		if w.floor > 0 && r.Outage.Lowest == 0 {
			t.withOutage = append(t.withOutage, w.name)
		}
	}
	return t
}

// verdict returns nil if every workload kept its floor under this project's scheduler, and
// otherwise an error with the workloads that did not.
func (r report) verdict() error {
	var broken []string
	for _, w := range workloads {
		if lowest := r.ours[w.name].Outage.Lowest; lowest < w.floor {
			broken = append(broken, fmt.Sprintf("%s (%d of %d)", w.name, lowest, w.floor))
		}
	}
	if broken != nil {
		return fmt.Errorf("under %s these fell below their floor: %s", schedulerName, strings.Join(broken, ", "))
	}
	return nil
}

// write prints the report in at most 100 columns.
func (r report) write(out io.Writer, color bool) {
	p := page{out, color}
	stock, ours := sum(workloads, r.stock), sum(workloads, r.ours)
	p.line("")
	r.writeWorkloads(p)
	r.writeTotals(p, stock, ours)
	p.line("")
	for _, act := range []struct {
		scheduler string
		totals
	}{{"the default scheduler", stock}, {schedulerName, ours}} {
		if len(act.withOutage) > 0 {
			p.paragraph(red, fmt.Sprintf("Services without any ready replica under %s: %s", act.scheduler, strings.Join(act.withOutage, ", ")))
		} else {
			p.paragraph(green, fmt.Sprintf("Services without any ready replica under %s: none", act.scheduler))
		}
	}
	p.line("")
	for _, text := range r.method() {
		p.paragraph(dim, text)
	}
	p.line("")
}

func (r report) writeWorkloads(p page) {
	bar := p.paint(dim, "│")
	p.line(" %-41s%s %s%s %s", "", bar, p.paint(bold, fmt.Sprintf("%-25s", "default scheduler")), bar, p.paint(bold, schedulerName))
	columns := fmt.Sprintf("%8s  %6s %7s ", "on spot", "lowest", "outage")
	p.line(" %-16s %-11s %11s %s%s%s%s", "workload", "", "floor", bar, columns, bar, columns)
	p.rule()
	cells := func(w workload, r result) string {
		style := green
		if r.Outage.Lowest < w.floor {
			style = red
		}
		return fmt.Sprintf("%8s  %s %7s ", fmt.Sprintf("%d/%d", r.OnSpot, w.replicas),
			p.paint(style, fmt.Sprintf("%6d", r.Outage.Lowest)), duration(r.Outage))
	}
	for _, w := range workloads {
		p.line(" %-16s %-11s %11s %s%s%s%s", w.name, w.kind, fmt.Sprintf("%d of %d", w.floor, w.replicas),
			bar, cells(w, r.stock[w.name]), bar, cells(w, r.ours[w.name]))
	}
	p.rule()
}

func (r report) writeTotals(p page, stock, ours totals) {
	services := 0
	for _, w := range workloads {
		if w.floor > 0 {
			services++
		}
	}
	bar := p.paint(dim, "│")
	row := func(title string, text func(totals) string) {
		p.line(" %-40s %s %-25s%s %s", title, bar, text(stock), bar, text(ours))
	}
	row("replicas on spot", func(t totals) string {
		return fmt.Sprintf("%d of %d (%.0f %%)", t.onSpot, t.replicas, 100*float64(t.onSpot)/float64(t.replicas))
	})
	row("services without any ready replica", func(t totals) string { return fmt.Sprintf("%d of %d", len(t.withOutage), services) })
	row(fmt.Sprintf("cost per hour (all on-demand: $%.2f)", r.allOnDemandUSD), func(t totals) string {
		return fmt.Sprintf("$%.2f (%.0f %% less)", t.hourUSD, 100*(1-t.hourUSD/r.allOnDemandUSD))
	})
	if stock.placed < stock.replicas || ours.placed < ours.replicas {
		row("replicas without a node, at no cost", func(t totals) string { return fmt.Sprint(t.replicas - t.placed) })
	}
}

// method describes the measurement.
func (r report) method() []string {
	spot, pools, zones := 0, map[string]bool{}, map[string]bool{}
	for _, n := range r.nodes {
		zones[n.Zone] = true
		if n.Capacity == lab.Spot {
			spot++
			pools[n.InstanceType+" "+n.Zone] = true
		}
	}
	return []string{
		fmt.Sprintf("Measured on %d nodes in %d zones: %d on-demand, %d spot in %d pools. After each placement every "+
			"spot node and its pods were deleted at once, without notice.", len(r.nodes), len(zones), len(r.nodes)-spot, spot, len(pools)),
		fmt.Sprintf("lowest: the fewest ready replicas that a watch reported. outage: time without a ready replica; > if it had not ended after "+
			"%.0f s. A replacement takes %.0f s to start here; to save time, the pods before the loss take %.0f s.",
			watchFor.Seconds(), podStartup.Seconds(), quickStartup.Seconds()),
		"The Job is batch, which may be interrupted. PodDisruptionBudgets exist, but do not protect against lost nodes.",
		"Cost: each replica pays the larger of its CPU and memory shares of its node's hourly price. That is the AWS us-east-1 " +
			"Linux on-demand list price; for spot an estimate, that price less the Spot Advisor's average saving.",
	}
}

// duration formats the time without a ready replica: - for none, and > if it had not ended.
func duration(o outage) string {
	switch {
	case o.Duration == 0:
		return "-"
	case o.Ongoing:
		return fmt.Sprintf(">%.1f s", o.Duration.Seconds())
	default:
		return fmt.Sprintf("%.1f s", o.Duration.Seconds())
	}
}
