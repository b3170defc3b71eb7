package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints the figures: the median of the rounds, with minimum and maximum. It returns an
// error if too few rounds count.
func (b *bench) report(arms []*arm) error {
	requests := len(verbs) * b.clients * b.pods
	on := fmt.Sprintf("servers and clients on the same %d cores", runtime.NumCPU())
	if !b.together {
		on = fmt.Sprintf("servers on %d core(s), clients and control plane on %d other(s)", b.serverCores.to-b.serverCores.from, b.otherCores.to-b.otherCores.from)
	}
	counted, excluded := len(arms[0].counted), len(arms[0].excluded)
	fmt.Printf("%d nodes, %d clients, %d requests in each round, %s; median (least-most) of the rounds\n", b.nodes, b.clients, requests, on)
	fmt.Printf("%d rounds count; %d are excluded because the hypervisor took more than %g %% of the cores' time\n\n", counted, excluded, 100*maxStolen)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tverb\tp50 ms\tp90 ms\tp99 ms\tmax ms\trequests/s\tserver's CPU ms/request\tstolen %")
	for _, a := range arms {
		rows(table, a.name, a.counted, requests)
	}
	for _, a := range arms {
		rows(table, a.name+", excluded", a.excluded, requests)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if counted > 0 {
		for _, verb := range verbs {
			ratios := make([]float64, counted)
			for i := range ratios {
				ratios[i] = quantile(arms[0].counted[i].latencies[verb], 0.99) / quantile(arms[1].counted[i].latencies[verb], 0.99)
			}
			fmt.Printf("\n%s: the p99 of %s is %s times that of %s", verb, arms[0].name, spread(ratios), arms[1].name)
		}
		fmt.Println()
	}
	if counted < b.rounds {
		return fmt.Errorf("only %d of %d rounds count", counted, b.rounds)
	}
	return nil
}

// rows prints a row for each verb, if there are any rounds.
func rows(table io.Writer, name string, rounds []round, requests int) {
	if len(rounds) == 0 {
		return
	}
	for _, verb := range verbs {
		figures := []func(round) float64{}
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			figures = append(figures, func(r round) float64 { return quantile(r.latencies[verb], q) })
		}
		figures = append(figures,
			func(r round) float64 { return float64(requests) / r.took.Seconds() },
			func(r round) float64 { return 1000 * r.cpu / float64(requests) },
			func(r round) float64 { return 100 * r.stolen },
		)
		fmt.Fprintf(table, "%s\t%s", name, verb)
		for _, figure := range figures {
			values := make([]float64, len(rounds))
			for i, r := range rounds {
				values[i] = figure(r)
			}
			fmt.Fprint(table, "\t", spread(values))
		}
		fmt.Fprintln(table)
	}
}

// spread prints the median of values, with minimum and maximum.
func spread(values []float64) string {
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return fmt.Sprintf("%.4g (%.4g-%.4g)", median, values[0], values[len(values)-1])
}

// quantile returns a quantile of sorted durations, in milliseconds.
func quantile(took []time.Duration, q float64) float64 {
	return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
}
