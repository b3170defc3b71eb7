package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

func (o *options) savingsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "savings",
		Short: "Show what spot saves now and could still save",
		Long: `Shows what the nodes cost per hour, what they would cost if all were on-demand, and which
workloads have replicas on on-demand beyond their floors that could run on spot (with -n,
workloads of one namespace). Prices are from the file of --prices or from
the node annotations spot-aware-scheduler.io/usd-per-hour and
spot-aware-scheduler.io/on-demand-usd-per-hour, which take precedence. Without --prices, the
list prices of a dozen AWS instance types in us-east-1 and the average spot discount apply.`,
		Example: `  kubectl spot savings
  kubectl spot savings -n shop
  kubectl spot savings --prices prices.csv -o json`,
		Args: cobra.NoArgs,
	}
	o.addAllNamespaces(command)
	p := newPrinting(command)
	readPrices := addPrices(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		prices, err := readPrices()
		if err != nil {
			return err
		}
		view, listed, err := o.readGivenNamespace(command.Context(), lister.Scope{Volumes: true})
		if err != nil {
			return err
		}
		if listed.NodesGap != nil {
			return fmt.Errorf("nodes cannot be read, so their cost is unknown: %w", listed.NodesGap.Err)
		}
		savings := view.Savings(prices)
		savings.Namespace = listed.Scope.Namespace
		o.warnIgnored(savings.Ignored)
		return o.printSavings(p, savings)
	}
	return command
}

// addPrices adds the flag --prices to a command. read returns the prices of its file, or the
// built-in prices.
func addPrices(command *cobra.Command) (read func() (*pricing.Prices, error)) {
	file := command.Flags().String("prices", "",
		"Path to a price list in US dollars per hour: CSV (.csv) with the header instanceType,zone,spot,onDemand, or YAML, a list of "+
			"such objects.")
	return func() (*pricing.Prices, error) { return pricing.ReadFile(*file) }
}

// warnIgnored prints the annotations that are not a valid price.
func (o *options) warnIgnored(annotations []string) {
	for _, annotation := range annotations {
		o.warn("%s: ignored", annotation)
	}
}

// warnUnpriced prints which nodes have no price, by pool.
func (o *options) warnUnpriced(pools map[string]int) {
	if len(pools) == 0 {
		return
	}
	unpriced := shorten(strings.Join(report.PoolCounts(pools), ", "))
	o.warn("no price for %s: these nodes are in no sum; use --prices FILE to set prices", unpriced)
}

func (o *options) printSavings(p *printing, s *report.Savings) error {
	if !p.humanReadable() {
		refs := refsOf(s.Surplus, func(w *report.Surplus) report.Ref { return w.Ref })
		return p.object(o.Out, "SpotSavings", &o.source, s, refs)
	}
	o.warnUnpriced(s.Unpriced)
	if !p.noHeaders {
		percent := 0.0
		if s.AllOnDemand > 0 {
			percent = 100 * s.CurrentSavings / s.AllOnDemand
		}
		fmt.Fprintf(o.Out, "%s and %s cost %.3f USD an hour; all on-demand they would cost %.3f. Spot saves %.3f, %.0f %%.\nPrices: %s.\n",
			report.Count(s.SpotNodes, "spot node", "spot nodes"), report.Count(s.OnDemandNodes, "on-demand node", "on-demand nodes"),
			s.Now, s.AllOnDemand, s.CurrentSavings, percent, s.Prices)
		if len(s.Surplus) == 0 {
			fmt.Fprintln(o.Out, o.source.qualified("No workload"+ofNamespace(s.Namespace)+" that opts in has replicas on on-demand beyond its "+
				"floor that could run on spot."))
			return nil
		}
		replicas := 0
		for i := range s.Surplus {
			replicas += s.Surplus[i].Replicas
		}
		fmt.Fprintf(o.Out, "On on-demand beyond the floors: %s; on spot they would save %.3f USD an hour more.\n\n",
			report.Count(replicas, "replica", "replicas"), s.PossibleSavings)
	}
	t := newWorkloadTable(s.Namespace, "floor", "on-demand", "surplus", "savings usd/hour")
	for i := range s.Surplus {
		w := &s.Surplus[i]
		t.workload(plain, w.Ref, w.Floor, w.OnDemand, w.Replicas, fmt.Sprintf("%.4f", w.PossibleSavings))
	}
	return p.table(o.Out, t)
}
