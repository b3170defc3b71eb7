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
		Long: `Shows what the nodes cost, how much of the spot nodes pods request and save, what each
workload costs and saves, and which replicas on on-demand beyond their floors could run on
spot. With -n, the workloads are of one namespace. Prices are from the file of --prices or from
the node annotations spot-aware-scheduler.io/usd-per-hour and
spot-aware-scheduler.io/on-demand-usd-per-hour, which take precedence. Without --prices, the
list prices of a dozen AWS instance types in us-east-1 and the average spot discount apply.`,
		Example: `  kubectl spot savings
  kubectl spot savings -n shop
  kubectl spot savings --prices prices.csv -o json`,
		Args: cobra.NoArgs,
	}
	p := o.newListPrinting(command)
	readPrices := addPrices(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		prices, err := readPrices()
		if err != nil {
			return err
		}
		scope := lister.Scope{Namespace: o.givenNamespace(), AllPods: true, Volumes: true, NodesRequired: true}
		view, _, err := o.readWideView(command.Context(), scope)
		if err != nil {
			return err
		}
		savings := view.Savings(prices)
		if err := sorted(p, savings.Workloads); err != nil {
			return err
		}
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

// warnPrices reports the annotations that are not a valid price, and which nodes have no price, by
// pool. The answer then is not complete.
func (o *options) warnPrices(of report.NodePrices) {
	for _, annotation := range of.Ignored {
		o.warn("%s: ignored", annotation)
	}
	if len(of.Unpriced) > 0 {
		o.lacks(fmt.Sprintf("no price for %s: these nodes are in no sum; use --prices FILE to set prices",
			strings.Join(report.PoolCounts(of.Unpriced), ", ")))
	}
}

func (o *options) printSavings(p *printing, s *report.Savings) error {
	o.warnPrices(s.NodePrices)
	if !p.humanReadable() {
		refs := refsOf(s.Workloads, func(w *report.WorkloadCost) report.Ref { return w.Ref })
		return p.object(o.Out, "SpotSavings", &o.source, s, refs)
	}
	if !p.noHeaders {
		o.printNodeCosts(s)
	}
	t := newWorkloadTable(s.Namespace, "on-demand", "spot", "floor", "usd/month", "saved usd/month", "surplus", "savings usd/month")
	for i := range s.Workloads {
		w := &s.Workloads[i]
		t.workload(w.Ref, w.OnDemand, w.Spot, orNone(w.NoFloor, w.Floor), report.OptionalDollars(w.Cost), report.OptionalDollars(w.Saved),
			orNone(w.NoFloor, w.Surplus), orNone(w.NoFloor, report.OptionalDollars(w.PossibleSavings)))
	}
	return p.table(o.Out, t)
}

func (o *options) printNodeCosts(s *report.Savings) {
	fmt.Fprintf(o.Out, "Nodes of the cluster with a price: %d of %d. Prices: %s.\n", s.PricedNodes, s.SpotNodes+s.OnDemandNodes, s.Prices)
	if s.PricedNodes > 0 {
		fmt.Fprintf(o.Out, "They cost %s: spot nodes %s, on-demand nodes %s.\n",
			hourAndMonth(s.Now), hourAndMonth(s.Spot), hourAndMonth(s.OnDemand))
	}
	if s.SpotUse != nil {
		fmt.Fprintf(o.Out, "Spot saves %s for what pods request, %.0f %% of the spot nodes. The idle rest costs %s.\n",
			hourAndMonth(s.UsedSavings), 100**s.SpotUse, hourAndMonth(s.IdleSpot))
	}
	replicas := 0
	for i := range s.Workloads {
		replicas += s.Workloads[i].Surplus
	}
	if replicas == 0 {
		fmt.Fprintln(o.Out, o.source.qualified("No workload"+ofNamespace(s.Namespace)+" that opts in has replicas on on-demand beyond its "+
			"floor that could run on spot."))
	} else {
		fmt.Fprintf(o.Out, "%s on on-demand beyond the floors. On spot they would save %s.\n",
			report.Count(replicas, "replica runs", "replicas run"), hourAndMonth(s.PossibleSavings))
	}
	fmt.Fprintln(o.Out, "\nNAMESPACE: cost and what spot saves, USD a month")
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		unknown := ""
		if n.UnknownCosts > 0 {
			unknown = fmt.Sprintf(", without %s of unknown cost", report.Count(n.UnknownCosts, "workload", "workloads"))
		}
		fmt.Fprintf(o.Out, "  %s: %.2f, saves %.2f%s\n", n.Namespace, n.Cost, n.Saved, unknown)
	}
	fmt.Fprintln(o.Out)
}

func hourAndMonth(usd float64) string {
	return fmt.Sprintf("%.3f USD an hour (%.2f a month)", usd, usd*report.HoursPerMonth)
}
