package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// shortNames has the short names that kubectl uses for the kinds of workloads.
var shortNames = map[string]string{
	"Pod": "po", "Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs", "Job": "job", "ReplicationController": "rc",
}

// kindOf returns the kind for a name such as deploy or deployments.apps. An unknown name is
// returned unchanged.
func kindOf(name string) string {
	resource, _, _ := strings.Cut(strings.ToLower(name), ".")
	for kind, short := range shortNames {
		if resource == short || strings.TrimSuffix(resource, "s") == strings.ToLower(kind) {
			return kind
		}
	}
	return name
}

func (o *options) explainCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "explain (KIND/NAME | KIND NAME)",
		Short: "Explain why a pod runs on its node or waits, and what would let it start",
		Long: `Explains a pod, or the first waiting pod of a workload: which rule or annotation defines
each setting, the current budget, which nodes accept the pod and why others do not, and
what would let a waiting pod start. The scheduler reports the same reasons.`,
		Example: `  kubectl spot explain pod/web-5d9f7c-x2x9z -n shop
  kubectl spot explain deploy/web -n shop
  kubectl spot explain sts/db -n shop -o yaml`,
		Args: cobra.RangeArgs(1, 2),
	}
	p := newPrinting(command)
	command.ValidArgsFunction = o.completeWorkloads
	command.RunE = func(command *cobra.Command, args []string) error {
		kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
		if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("invalid value %q: expected KIND/NAME, such as pod/web-0 or deploy/web; %w", strings.Join(args, " "), errUsage)
		}
		view, listed, err := o.readNamespaceView(command.Context(), lister.Scope{AllPods: true, Volumes: true, IncludeScaledToZero: true})
		if err != nil {
			return err
		}
		explanation, err := view.Explain(kindOf(kind), listed.Scope.Namespace, name)
		if errors.Is(err, report.ErrNotFound) && listed.OwnersMissing {
			return fmt.Errorf("%w; but not all owners of pods could be read", err)
		}
		if err != nil {
			return err
		}
		if !p.humanReadable() {
			return p.object(o.Out, "SpotExplanation", &o.source, explanation, []report.Ref{explanation.Object})
		}
		return p.explanation(o.Out, explanation)
	}
	return command
}

// explanation prints an explanation in the style of kubectl describe.
func (p *printing) explanation(out io.Writer, e *report.Explanation) error {
	fmt.Fprintf(out, "%s in namespace %s: %s.\n", e.Object, e.Object.Namespace, e.Answer)
	if e.Pod != "" && e.Object.Kind != "Pod" {
		fmt.Fprintf(out, "This explains its pod %s.\n", e.Pod)
	}
	if e.Workload != nil {
		p.policy(out, e)
	}
	if len(e.Remedies) > 0 {
		fmt.Fprintln(out, "\nWhat would let it start:")
		for _, remedy := range e.Remedies {
			fmt.Fprintf(out, "  - %s\n", remedy)
		}
	}
	if len(e.Nodes) > 0 {
		subject := "it"
		if e.Pod == "" {
			subject = "one more replica"
		}
		fmt.Fprintf(out, "\nNodes for %s:\n", subject)
	}
	var t table
	t.columns(always, "count", "capacity", "pool", "accepts", "reasons")
	t.columns(wide, "names")
	for i := range e.Nodes {
		g := &e.Nodes[i]
		accepts, pool := "no", cell(g.Pool)
		if g.Accepts {
			accepts = "yes"
		}
		if g.Pools > 1 {
			pool = fmt.Sprintf("%d pools", g.Pools)
		}
		t.row(g.Count, g.Capacity, pool, accepts, cell(strings.Join(g.Reasons, "; ")), strings.Join(g.Names, ","))
	}
	return p.table(out, &t)
}

func (p *printing) policy(out io.Writer, e *report.Explanation) {
	fmt.Fprintf(out, "\nThe policy for %s (%s):\n", e.Workload, e.Revision)
	for _, s := range e.Settings {
		fmt.Fprintf(out, "  %-18s %-14s from %s\n", s.Name, s.Value, s.Source)
	}
	for _, ignored := range e.Ignored {
		fmt.Fprintf(out, "  %s\n", ignored)
	}
	if e.Assigned != "" {
		fmt.Fprintf(out, "  %-18s %q by the controller, before the pod was scheduled\n", "assigned", e.Assigned)
	}
	if e.Granted != "" {
		fmt.Fprintf(out, "  %-18s %q by the controller: any spot node, regardless of budget and cap\n", "granted", e.Granted)
	}
	if e.Disruptions != "" {
		fmt.Fprintf(out, "  %-18s %s\n", "disruptions", e.Disruptions)
	}
	fmt.Fprintf(out, "  So %d of %d replicas must survive the loss of all spot. ", e.Floor, e.Desired)
	if e.Ordinal != nil {
		fmt.Fprintf(out, "%s; this is ordinal %d.\n", sentence(e.BudgetUsage), *e.Ordinal)
		return
	}
	fmt.Fprintf(out, "At most %d of its revision may be on spot", e.Budget)
	if e.OnSpot != nil && e.OnOnDemand != nil {
		fmt.Fprintf(out, "; it has %d on spot and %d on on-demand", *e.OnSpot, *e.OnOnDemand)
		if e.Pod != "" {
			fmt.Fprint(out, ", without this pod")
		}
	}
	fmt.Fprintln(out, ".")
}
