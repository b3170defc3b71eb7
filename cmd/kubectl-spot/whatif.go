package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

func (o *options) whatIfCommand() *cobra.Command {
	var lose []string
	var policyFile, failOn string
	command := &cobra.Command{
		Use:   "what-if (--lose NODES... | --policy FILE)",
		Short: "Show the effect of a loss of nodes, or of another policy",
		Long: `Shows which workloads would have no replica left, or fewer than their floor, if nodes were
lost at once: the state at that moment, before any replica is recreated. --lose may be
repeated; then all these nodes are lost. With --policy, it shows which floors another
configuration would change, and which workloads would then lack replicas on on-demand.
RECOVERABLE counts the lost replicas for which the remaining nodes have room.
With --fail-on, the exit status is 4 if a workload has this effect, or a worse one.`,
		Example: `  kubectl spot what-if --lose all-spot -A
  kubectl spot what-if --lose pool=m5.xlarge/us-east-1a --lose zone=us-east-1b -A
  kubectl spot what-if --lose all-spot -A --fail-on below-floor
  kubectl spot what-if --lose node=worker-1 -A -o wide   # before a drain
  kubectl spot what-if --policy stricter.yaml -A
  kubectl spot what-if --policy stricter.yaml --lose all-spot -A -o json`,
		Args: cobra.NoArgs,
	}
	p := o.newListPrinting(command)
	command.Flags().StringArrayVar(&lose, "lose", nil,
		"Nodes that are lost: all-spot, pool=TYPE/ZONE (its spot nodes), zone=ZONE or node=NAME. May be repeated.")
	command.Flags().StringVar(&policyFile, "policy", "", "Path to a scheduler configuration file with another policy.")
	command.Flags().StringVar(&failOn, "fail-on", "",
		"Exit with status 4 if a workload has this effect or a worse one: "+failuresText+". ToZeroAllowed never fails.")
	utilruntime.Must(command.RegisterFlagCompletionFunc("lose", o.completeLosses)) // the flag exists
	command.RunE = func(command *cobra.Command, _ []string) error {
		return o.whatIf(command.Context(), p, lose, policyFile, failOn)
	}
	return command
}

// failures are the values of --fail-on.
var failures = map[string]report.LossEffect{
	"to-zero": report.LossToZero, "below-floor": report.LossBelowFloor, "below-disruption-budget": report.LossBelowDisruptionBudget,
}

const failuresText = "to-zero, below-floor or below-disruption-budget"

// whatIf prints what would be lost with nodes, and what the policy in a file would change. Either
// may be empty, but not both.
func (o *options) whatIf(ctx context.Context, p *printing, lose []string, policyFile, failOn string) error {
	if len(lose) == 0 && policyFile == "" {
		return fmt.Errorf("--lose or --policy is required; %w", errUsage)
	}
	limit, known := failures[failOn]
	switch {
	case failOn != "" && !known:
		return fmt.Errorf("--fail-on: invalid value %q: expected %s; %w", failOn, failuresText, errUsage)
	case failOn != "" && len(lose) == 0:
		return fmt.Errorf("--fail-on requires --lose; %w", errUsage)
	}
	for _, text := range lose {
		if err := report.CheckLoss(text); err != nil {
			return fmt.Errorf("--lose: %w; %w", err, errUsage)
		}
	}
	view, listed, err := o.readNamespaceView(ctx, lister.Scope{AllPods: true, Volumes: true, NodesRequired: true, DisruptionBudgets: true})
	if err != nil {
		return err
	}
	alternative := view
	if policyFile != "" {
		other, err := o.readPolicyFile(policyFile)
		if err != nil {
			return err
		}
		if alternative, err = o.viewOf(listed, other); err != nil {
			return err
		}
	}
	result, err := alternative.SimulateLoss(lose)
	if err != nil {
		return err
	}
	if policyFile != "" {
		result.Policy, result.Changes = policyFile, view.Changes(alternative)
	}
	if err := sorted(p, result.Workloads); err != nil {
		return err
	}
	if err := o.printWhatIf(p, result, listed.Scope.Namespace); err != nil {
		return err
	}
	if known && slices.ContainsFunc(result.Workloads, func(w report.AffectedWorkload) bool { return w.Effect.AtLeast(limit) }) {
		return errUnsafe
	}
	return nil
}

func (o *options) printWhatIf(p *printing, result *report.WhatIf, namespace string) error {
	if !p.humanReadable() {
		var refs []report.Ref
		for _, l := range result.Workloads {
			if l.Effect != report.LossKeepsFloor && l.Effect != report.LossToZeroAllowed {
				refs = append(refs, l.Ref)
			}
		}
		for _, c := range result.Changes {
			if c.FloorDeficit > 0 && !slices.Contains(refs, c.Ref) {
				refs = append(refs, c.Ref)
			}
		}
		return p.object(o.Out, "SpotWhatIf", &o.source, result, refs)
	}
	if result.Policy != "" {
		if err := p.changes(o.Out, result, namespace); err != nil || len(result.Lose) == 0 {
			return err
		}
		fmt.Fprintln(o.Out)
	}
	if o.source.noOwners {
		o.warn("workloads whose owners could not be read are missing below")
	}
	return p.losses(o.Out, result, namespace)
}

// losses prints the affected workloads. Workloads that still meet their floor are printed only with
// -o wide.
func (p *printing) losses(out io.Writer, result *report.WhatIf, namespace string) error {
	lost, recoverable, count := 0, 0, map[report.LossEffect]int{}
	t := newWorkloadTable(namespace, "effect", "desired", "floor", "before", "after", "recoverable")
	for i := range result.Workloads {
		l := &result.Workloads[i]
		lost, recoverable = lost+l.Before-l.After, recoverable+l.Recoverable
		if count[l.Effect]++; l.Effect != report.LossKeepsFloor || p.wide() {
			t.workload(l.Ref, l.Effect, l.Desired, orNone(l.NoFloor, l.Floor), l.Before, l.After, l.Recoverable)
		}
	}
	if !p.noHeaders {
		fmt.Fprintf(out, "%s%s would be lost with %s.",
			report.Count(result.Pods, "replica", "replicas"), ofNamespace(namespace), report.Count(result.Nodes, "node", "nodes"))
		if result.Pods == 0 {
			if namespace != "" {
				fmt.Fprint(out, " Use -A for all namespaces.")
			}
			fmt.Fprintln(out)
			return nil
		}
		allowed := ""
		if n := count[report.LossToZeroAllowed]; n > 0 {
			allowed = fmt.Sprintf(" (%d with the floor 0)", n)
		}
		fmt.Fprintf(out, " Of %s, %d would have no replica left%s, %d fewer than the floor, "+
			"%d fewer than a PodDisruptionBudget requires, and %d would keep enough.\n"+
			"The remaining nodes have room for %d of the %d lost replicas.\n",
			report.Count(len(result.Workloads), "affected workload", "affected workloads"),
			count[report.LossToZero]+count[report.LossToZeroAllowed], allowed, count[report.LossBelowFloor],
			count[report.LossBelowDisruptionBudget], count[report.LossKeepsFloor], recoverable, lost)
	}
	return p.table(out, t)
}

func (p *printing) changes(out io.Writer, result *report.WhatIf, namespace string) error {
	missing, freed := 0, 0
	t := newWorkloadTable(namespace, "desired", "floor now", "floor then", "on-demand then", "floor deficit", "more on spot")
	for i := range result.Changes {
		c := &result.Changes[i]
		missing, freed = missing+c.FloorDeficit, freed+c.AdditionalSpot
		t.workload(c.Ref, c.Desired, c.FloorNow, c.FloorThen, c.OnDemandThen, c.FloorDeficit, c.AdditionalSpot)
	}
	if !p.noHeaders {
		changed := report.Count(len(result.Changes),
			"workload has a different floor or on-demand count", "workloads have different floors or on-demand counts")
		fmt.Fprintf(out, "With policy %s, %s: %s would have to move to on-demand, %s could move to spot.\n", result.Policy, changed,
			report.Count(missing, "replica", "replicas"), report.Count(freed, "replica", "replicas"))
	}
	return p.table(out, t)
}
