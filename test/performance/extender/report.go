package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// report prints the figures: the median of the rounds, with minimum and maximum. It returns an
// error if too few rounds count.
func (b *bench) report(arms []*arm) error {
	requests := len(verbs) * b.clients * b.pods
	on := fmt.Sprintf("servers and clients on the same %d cores", runtime.NumCPU())
	if !b.together {
		on = fmt.Sprintf("servers on %d core(s), clients and control plane on %d other(s)", b.serverCores.to-b.serverCores.from,
			b.otherCores.to-b.otherCores.from)
	}
	counted, excluded := len(arms[0].counted), len(arms[0].excluded)
	fmt.Printf("%d nodes, %d clients, %d requests in each round, %s; median (least-most) of the rounds\n", b.nodes, b.clients, requests, on)
	fmt.Printf("%d rounds count; %d are excluded because the hypervisor took more than %g %% of the cores' time\n\n",
		counted, excluded, 100*maxStolen)
	var table [][]string
	for _, a := range arms {
		table = append(table, rows(a.name, a.counted, requests)...)
	}
	for _, a := range arms {
		table = append(table, rows(a.name+", excluded", a.excluded, requests)...)
	}
	header := []string{"server", "verb", "p50 ms", "p90 ms", "p99 ms", "max ms", "requests/s", "server's CPU ms/request", "stolen %"}
	if err := frame.Table(os.Stdout, header, table...); err != nil {
		return err
	}
	if counted > 0 {
		for _, verb := range verbs {
			ratios := make([]float64, counted)
			for i := range ratios {
				ratios[i] = frame.Quantile(arms[0].counted[i].latencies[verb], 0.99) / frame.Quantile(arms[1].counted[i].latencies[verb], 0.99)
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

// rows returns a row for each verb, if there are any rounds.
func rows(name string, rounds []round, requests int) (table [][]string) {
	if len(rounds) == 0 {
		return nil
	}
	for _, verb := range verbs {
		figures := []func(round) float64{}
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			figures = append(figures, func(r round) float64 { return frame.Quantile(r.latencies[verb], q) })
		}
		figures = append(figures,
			func(r round) float64 { return float64(requests) / r.took.Seconds() },
			func(r round) float64 { return 1000 * r.cpu / float64(requests) },
			func(r round) float64 { return 100 * r.stolen },
		)
		row := []string{name, verb}
		for _, figure := range figures {
			values := make([]float64, len(rounds))
			for i, r := range rounds {
				values[i] = figure(r)
			}
			row = append(row, spread(values))
		}
		table = append(table, row)
	}
	return table
}

// spread returns the median of values, with minimum and maximum.
func spread(values []float64) string {
	r := frame.RangeOf(values)
	return fmt.Sprintf("%.4g (%.4g-%.4g)", r.Median, r.Min, r.Max)
}
