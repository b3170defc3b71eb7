package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

func (o *options) statusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "status [KIND/NAME...]",
		Short: "Show floor, on-demand and spot replicas of each workload",
		Long: `Shows for each workload that opts in how many replicas it wants, how many must survive the
loss of all spot (FLOOR), how many run on on-demand and on spot nodes, how many wait, and
how many would remain without any spot. -o wide also shows how many would remain without
the spot pool with most replicas.
REASONS shows what a move waits for, and until when. Workloads with problems come first.`,
		Example: `  kubectl spot status -A
  kubectl spot status deploy/web sts/db -n shop -o wide
  kubectl spot status -A --sort-by=.desired -w
  kubectl spot status -n shop -l app.kubernetes.io/part-of=checkout
  kubectl spot status -A -o jsonpath='{range .items[?(@.state=="BelowFloor")]}{.namespace}/{.name}{"\n"}{end}'`,
		ValidArgsFunction: o.completeWorkloads,
	}
	parseSelector := addSelector(command)
	p := o.newListPrinting(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		selector, err := parseSelector()
		if err != nil {
			return err
		}
		view, listed, err := o.readNamespaceView(command.Context(), lister.Scope{DisruptionBudgets: true, Volumes: true})
		if err != nil {
			return err
		}
		if err := o.readController(command.Context(), view); err != nil {
			return err
		}
		namespace := listed.Scope.Namespace
		all, others := view.Statuses()
		if len(all) > 0 && !selector.Empty() {
			all = view.Select(all, selector)
			if len(all) == 0 && p.humanReadable() {
				fmt.Fprintln(o.ErrOut, o.source.qualified(fmt.Sprintf("No workload%s that opts in matches -l %s.", ofNamespace(namespace), selector)))
				return nil
			}
		}
		if all, err = named(all, args); err != nil {
			return err
		}
		if err := sorted(p, all); err != nil {
			return err
		}
		return o.printStatus(p, all, others, namespace)
	}
	addWatch(command, p)
	return command
}

// named returns the workloads with the names KIND/NAME; all without names.
func named(all []report.Status, names []string) (found []report.Status, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, arg := range names {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" {
			return nil, fmt.Errorf("invalid value %q: expected KIND/NAME, such as deploy/web; %w", arg, errUsage)
		}
		before := len(found)
		for i := range all {
			if strings.EqualFold(all[i].Kind, kindOf(kind)) && all[i].Name == name {
				found = append(found, all[i])
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("%s: no such workload opts in; kubectl spot explain %s explains it", arg, arg)
		}
	}
	return found, nil
}

func (o *options) printStatus(p *printing, all []report.Status, others int, namespace string) error {
	if !p.humanReadable() {
		refs := refsOf(all, func(s *report.Status) report.Ref { return s.Ref })
		return p.object(o.Out, "SpotStatus", &o.source, map[string]any{"items": all, "otherWorkloads": others}, refs)
	}
	if len(all) == 0 {
		fmt.Fprint(o.ErrOut, o.source.qualified(fmt.Sprintf("No workload%s opts in: none has schedulerName %s, or keeps its "+
			"scheduler by the label %s: %s.", ofNamespace(namespace), o.profile, spot.OptInLabel, spot.KeepScheduler)))
		if others > 0 {
			fmt.Fprintf(o.ErrOut, " %s another scheduler.", report.Count(others, "workload names", "workloads name"))
		}
		fmt.Fprintln(o.ErrOut, " "+docsURL+"opt-in.md explains how; use -A for all namespaces and --profile for another scheduler's pods.")
		return nil
	}
	t := newWorkloadTable(namespace, "state", "desired", "floor", "on-demand", "spot", "waiting", "without spot")
	t.columns(wide, "without pool", "largest pool")
	t.columns(always, "reasons")
	for i := range all {
		s := &all[i]
		t.workload(s.Ref, s.State, s.Desired, orNone(s.NoFloor, s.Floor), report.OptionalCount(s.OnDemand), report.OptionalCount(s.Spot),
			s.Waiting, report.OptionalCount(s.WithoutSpot), report.OptionalCount(s.WithoutPool), cell(s.LargestPool), p.reasons(s.Reasons))
	}
	return p.table(o.Out, t)
}

// reasons returns the cell of a column of reasons: all with -o wide, otherwise whole reasons until
// the cell is long. The first may be only what is missing, and the next why.
func (p *printing) reasons(reasons []string) string {
	const long = 160
	text := ""
	for i, reason := range reasons {
		if len(text) > long && !p.wide() {
			text += fmt.Sprintf("; %d more (-o wide)", len(reasons)-i)
			break
		}
		if i > 0 {
			text += "; "
		}
		text += reason
	}
	return cell(text)
}

// readController sets View.Rebalancer if an answer depends on it, and reports what could not be
// read.
func (o *options) readController(ctx context.Context, view *report.View) (err error) {
	if !view.HasMisplaced() && !o.changedSwitches {
		return nil
	}
	view.Rebalancer, err = lister.ReadController(ctx, o.client, view.Snapshot.Now)
	if err != nil {
		return o.withHint(err, view.Namespace)
	}
	for _, gap := range view.Rebalancer.Gaps {
		o.recordGap(gap.String())
	}
	return nil
}
