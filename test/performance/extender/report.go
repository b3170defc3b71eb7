package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints the figures: each the median of the rounds that count, and the least and the most. noisy is what was stolen in the others.
func report(o options, arms []*arm, noisy []float64) error {
	if len(arms[0].rounds) == 0 {
		return fmt.Errorf("in none of %d rounds did the hypervisor leave the cores to this machine: it took %s %% of their time, and %g %% are "+
			"the most with which a round counts", len(noisy), percent(noisy), 100*stolenAtMost)
	}
	requests := len(verbs) * o.clients * o.pods
	on := fmt.Sprintf("servers and clients on the same %d cores", runtime.NumCPU())
	if servers, others, _ := halves(); !o.together {
		on = fmt.Sprintf("servers on %d core(s), clients and control plane on %d others", servers.to-servers.from, others.to-others.from)
	}
	fmt.Printf("%d nodes, %d clients, %d requests in each of %d rounds, %s; median (least-most) of the rounds\n",
		o.nodes, o.clients, requests, len(arms[0].rounds), on)
	if len(noisy) > 0 {
		fmt.Printf("%d other rounds are left out, in which the hypervisor took %s %% of the cores' time\n", len(noisy), percent(noisy))
	}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tverb\tp50 ms\tp90 ms\tp99 ms\tmax ms\trequests/s\tserver's CPU ms/request")
	for _, a := range arms {
		for _, verb := range verbs {
			fmt.Fprintf(table, "%s\t%s", a.name, verb)
			for _, q := range []float64{0.5, 0.9, 0.99, 1} {
				fmt.Fprintf(table, "\t%s", a.figure(func(r round) float64 { return quantile(r.answers[verb], q) }))
			}
			fmt.Fprintf(table, "\t%s\t%s\n", a.figure(func(r round) float64 { return float64(requests) / r.took.Seconds() }),
				a.figure(func(r round) float64 { return 1000 * r.cpu / float64(requests) }))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, verb := range verbs {
		ratios := make([]float64, len(arms[0].rounds))
		for i := range ratios {
			ratios[i] = quantile(arms[0].rounds[i].answers[verb], 0.99) / quantile(arms[1].rounds[i].answers[verb], 0.99)
		}
		fmt.Printf("\n%s: the p99 of %s is %s times that of %s", verb, arms[0].name, spread(ratios), arms[1].name)
	}
	fmt.Println()
	return nil
}

// figure prints what of gives for each round.
func (a *arm) figure(of func(round) float64) string {
	values := make([]float64, len(a.rounds))
	for i, r := range a.rounds {
		values[i] = of(r)
	}
	return spread(values)
}

// spread prints the median of values, and the least and the most.
func spread(values []float64) string {
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return fmt.Sprintf("%.4g (%.4g-%.4g)", median, values[0], values[len(values)-1])
}

// percent prints parts of a whole.
func percent(parts []float64) string {
	percents := make([]float64, len(parts))
	for i, part := range parts {
		percents[i] = 100 * part
	}
	return spread(percents)
}

// quantile returns a quantile of what is sorted, in milliseconds.
func quantile(took []time.Duration, q float64) float64 {
	return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
}
