package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

func (o *options) nodesCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "nodes [NAME...]",
		Short: "Show capacity type, interruption signals and affected replicas",
		Long: `Shows the capacity type of each node, its pool, the strongest interruption signal and
its deadline, how many replicas would be lost with it, and how many workloads would then be
below their floor or have no replica. Nodes with signals come first. -o wide shows which label
defines the capacity type, all signals, and these workloads.`,
		Example: `  kubectl spot nodes
  kubectl spot nodes -l topology.kubernetes.io/zone=us-east-1a -o wide`,
	}
	parseSelector := addSelector(command)
	p := o.newListPrinting(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		selector, err := parseSelector()
		if err != nil {
			return err
		}
		view, _, err := o.readWideView(command.Context(), lister.Scope{NodesRequired: true})
		if err != nil {
			return err
		}
		all := view.Nodes(selector)
		if len(all) == 0 && !selector.Empty() && p.humanReadable() {
			fmt.Fprintf(o.ErrOut, "No node matches -l %s.\n", selector)
			return nil
		}
		for _, name := range args {
			if !slices.ContainsFunc(all, func(n report.Node) bool { return n.Name == name }) {
				return fmt.Errorf("node %q is not in the cluster, or the selector excludes it", name)
			}
		}
		all = slices.DeleteFunc(all, func(n report.Node) bool { return len(args) > 0 && !slices.Contains(args, n.Name) })
		if err := sorted(p, all); err != nil {
			return err
		}
		return o.printNodes(p, all, view.Snapshot.Now)
	}
	addWatch(command, p)
	return command
}

// readWideView is like readView. If scope has no namespace, and the whole cluster may not be read,
// it reads only the namespace of the context.
func (o *options) readWideView(ctx context.Context, scope lister.Scope) (*report.View, *lister.Objects, error) {
	view, listed, err := o.readView(ctx, scope)
	if !apierrors.IsForbidden(err) || scope.Namespace != "" {
		return view, listed, err
	}
	namespace, nsErr := o.namespace()
	if nsErr != nil || namespace == "" {
		return nil, nil, err
	}
	o.recordGap(fmt.Sprintf("pods cannot be listed in all namespaces: only pods of namespace %s are counted", namespace))
	scope.Namespace, scope.AllPods = namespace, false // all pods were denied
	return o.readView(ctx, scope)
}

func (o *options) printNodes(p *printing, all []report.Node, now time.Time) error {
	if !p.humanReadable() {
		refs := refsOf(all, func(n *report.Node) report.Ref { return report.Ref{APIVersion: "v1", Kind: "Node", Name: n.Name} })
		return p.object(o.Out, "SpotNodes", &o.source, map[string]any{"items": all}, refs)
	}
	if len(all) == 0 {
		fmt.Fprintln(o.ErrOut, "The cluster has no nodes.")
		return nil
	}
	var t table
	t.columns(always, "name", "status", "age", "capacity", "pool", "free cpu", "free memory", "interruption", "deadline", "replicas",
		"below floor")
	t.columns(wide, "source", "signals", "workloads below floor")
	for i := range all {
		n := &all[i]
		below := make([]string, len(n.WorkloadsBelowFloor))
		for j, ref := range n.WorkloadsBelowFloor {
			below[j] = ref.Namespace + "/" + ref.Name
		}
		t.row(n.Name, n.Status, duration.HumanDuration(now.Sub(n.Created)), n.Capacity, cell(n.Pool),
			n.FreeCPU, n.FreeMemory, orNone(n.Interruption == "none", n.Interruption),
			orNone(n.Deadline.IsZero(), until(n.Deadline.Sub(now))), n.Replicas, n.BelowFloor,
			n.CapacitySource, cell(strings.Join(n.Signals, ", ")), cell(strings.Join(below, ", ")))
	}
	return p.table(o.Out, &t)
}

func until(d time.Duration) string {
	if d < 0 {
		return duration.HumanDuration(-d) + " ago"
	}
	return "in " + duration.HumanDuration(d)
}
