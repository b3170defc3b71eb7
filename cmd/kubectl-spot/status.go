package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

func (o *options) statusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show floor, on-demand and spot replicas of each workload",
		Long: `Shows for each workload that opts in how many replicas it wants, how many must survive the
loss of all spot (FLOOR), how many run on on-demand and on spot nodes, how many would
remain without any spot and without the spot pool with most replicas, and how many wait.
Workloads with problems come first.`,
		Example: `  kubectl spot status -A
  kubectl spot status -n shop -o wide
  kubectl spot status -n shop -l app.kubernetes.io/part-of=checkout
  kubectl spot status -A -o jsonpath='{range .items[?(@.state=="BelowFloor")]}{.namespace}/{.name}{"\n"}{end}'`,
		Args: cobra.NoArgs,
	}
	o.addAllNamespaces(command)
	parseSelector := addSelector(command)
	p := newPrinting(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		selector, err := parseSelector()
		if err != nil {
			return err
		}
		view, listed, err := o.readNamespaceView(command.Context(), lister.Scope{DisruptionBudgets: true})
		if err != nil {
			return err
		}
		namespace := listed.Scope.Namespace
		all, others := view.Statuses()
		if len(all) > 0 && !selector.Empty() {
			all = slices.DeleteFunc(all, func(s report.Status) bool {
				return !selector.Matches(listed.Labels(s.APIVersion, s.Kind, s.Namespace, s.Name))
			})
			if len(all) == 0 && p.humanReadable() {
				fmt.Fprintln(o.ErrOut, o.source.qualified(fmt.Sprintf("No workload in %s that opts in matches -l %s.", scopeName(namespace), selector)))
				return nil
			}
		}
		return o.printStatus(p, all, others, namespace)
	}
	return command
}

func (o *options) printStatus(p *printing, all []report.Status, others int, namespace string) error {
	if !p.humanReadable() {
		refs := refsOf(all, func(s *report.Status) report.Ref { return s.Ref })
		return p.object(o.Out, "SpotStatus", &o.source, map[string]any{"items": all, "otherWorkloads": others}, refs)
	}
	if len(all) == 0 {
		fmt.Fprint(o.ErrOut, o.source.qualified(fmt.Sprintf("No workload in %s opts in: no pod there has schedulerName %s.",
			scopeName(namespace), o.profile)))
		if others > 0 {
			fmt.Fprintf(o.ErrOut, " %s another scheduler.", report.Count(others, "workload there names", "workloads there name"))
		}
		fmt.Fprintln(o.ErrOut, " docs/opt-in.md explains how; use -A for all namespaces and --profile for another scheduler's pods.")
		return nil
	}
	t := newWorkloadTable(namespace, "state", "desired", "floor", "on-demand", "spot", "waiting", "without spot", "without pool")
	t.columns(wide, "largest pool")
	t.columns(always, "reasons")
	for i := range all {
		s := &all[i]
		t.workload(stateColours[s.State], s.Ref, s.State, s.Desired, s.Floor, number(s.OnDemand), number(s.Spot), s.Waiting,
			number(s.WithoutSpot), number(s.WithoutPool), cell(s.LargestPool), p.reasons(s.Reasons))
	}
	return p.table(o.Out, t)
}

var stateColours = map[report.State]colour{
	report.BelowFloor: red, report.OverBudget: red, report.Waiting: yellow, report.RollingOut: yellow,
	report.Moving: yellow, report.Unknown: yellow,
}

// reasons returns the cell of a column of reasons.
func (p *printing) reasons(reasons []string) string {
	text := strings.Join(reasons, "; ")
	if !p.wide() {
		text = shorten(text)
	}
	return cell(text)
}

// shorten truncates text that would break lines on most terminals; -o wide prints all of it.
func shorten(text string) string {
	const most = 72
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
