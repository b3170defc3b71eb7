package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// patchFormat is the output format that makes the workloads opt in.
const patchFormat = "patch"

func (o *options) assessCommand() *cobra.Command {
	var from, html, mode string
	var spotPools []string
	command := &cobra.Command{
		Use:   "assess",
		Short: "Show which workloads could run on spot, before the installation",
		Long: `Shows for each workload whether it can run on spot now, with a change, or should not, the
floor that the policy gives it, how many ready replicas a loss of all spot nodes leaves
today and with the policy, and its costs per month. Nothing needs to be installed. With
--mode keep-scheduler, pods keep their scheduler, and opt in by a label. It reads the
cluster, or with --from a dump of it. Workloads of kube-system are only shown with
-n kube-system. -o patch prints commands that make the workloads opt in. If there is no
spot node yet, --spot-pool describes one.`,
		Example: `  kubectl spot assess
  kubectl spot assess --html report.html
  kubectl get -A -o json \
    nodes,pods,deployments,statefulsets,replicasets,jobs,daemonsets,poddisruptionbudgets,pvc,pv,namespaces \
    > dump.json
  kubectl spot assess --from dump.json --prices prices.csv
  kubectl spot assess --spot-pool instanceType=m5.xlarge,cpu=4,memory=16Gi,taint=spot:NoSchedule
  kubectl spot assess -n shop -o patch > opt-in.sh`,
		Args: cobra.NoArgs,
	}
	p := o.newListPrinting(command, patchFormat, tableFormat)
	readPrices := addPrices(command)
	command.Flags().StringVar(&from, "from", "",
		"Path to the output of kubectl get -o json or -o yaml, or of kubectl cluster-info dump, also compressed by gzip; or to a directory of "+
			"such files; or - for standard input. If empty, the cluster is read.")
	command.Flags().StringVar(&html, "html", "", "Path of a report for a browser to write, in addition to the output.")
	modes := []string{string(report.ModeOwn), string(report.ModeKeepScheduler)}
	command.Flags().StringVar(&mode, "mode", modes[0],
		"own: our scheduler places the pods that opt in. keep-scheduler: they keep their scheduler, and only the controller is installed.")
	complete := cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp)
	utilruntime.Must(command.RegisterFlagCompletionFunc("mode", complete)) // the flag exists
	command.Flags().StringArrayVar(&spotPools, "spot-pool", nil,
		"A spot pool to come, checked as if it existed. May be repeated: "+report.SpotPoolForm+".")
	for _, flag := range []string{"from", "html"} {
		utilruntime.Must(command.MarkFlagFilename(flag)) // the flag exists
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if !slices.Contains(modes, mode) {
			return fmt.Errorf("--mode: invalid value %q: expected %s; %w", mode, strings.Join(modes, " or "), errUsage)
		}
		prices, err := readPrices()
		if err != nil {
			return err
		}
		return o.assess(command.Context(), p, prices, report.Mode(mode), from, html, spotPools)
	}
	return command
}

func (o *options) assess(
	ctx context.Context, p *printing, prices *pricing.Prices, mode report.Mode, from, html string, spotPools []string,
) error {
	o.beforeInstall = true
	scope := lister.Scope{Namespace: o.givenNamespace(), Volumes: true, NodesRequired: true, DisruptionBudgets: true}
	view, listed, err := o.readDump(ctx, from, scope)
	if err != nil {
		return err
	}
	view.Mode = mode
	view.DisruptionBudgetsUnknown = listed.GapOf("PodDisruptionBudget") != nil || slices.Contains(listed.Missing, "poddisruptionbudgets")
	for _, text := range spotPools {
		pool, err := view.NewSpotPool(text)
		if err != nil {
			return fmt.Errorf("--spot-pool: %w; %w", err, errUsage)
		}
		view.SpotPools = append(view.SpotPools, pool)
	}
	assessment := view.Assess(prices, listed.Scope.Namespace == metav1.NamespaceSystem)
	assessment.Cluster, assessment.Namespace = o.clusterName(from), listed.Scope.Namespace
	assessment.Missing, assessment.Unused = listed.Missing, listed.Unused
	if n := assessment.UnknownOwners; n > 0 {
		o.lacks(fmt.Sprintf("the owners of %s are unknown: their workloads are missing", report.Count(n, "pod", "pods")))
	}
	warnings := slices.Clone(o.source.ReadErrors)
	if mode == report.ModeKeepScheduler {
		warnings = append(warnings, "your scheduler chooses the spot pools: if it packs nodes, one pool may get all replicas beyond a floor ("+
			docsURL+"any-scheduler.md#spot-pools)")
		o.warn("%s", warnings[len(warnings)-1])
	}
	if html != "" {
		page, err := assessment.HTML(o.source.Policy.Name, warnings, view.Snapshot.Now)
		if err != nil {
			return err
		}
		if err := os.WriteFile(html, page, 0o644); err != nil { //nolint:gosec // a report to share
			return fmt.Errorf("--html: expected a file that can be written: %w", err)
		}
	}
	if err := sorted(p, assessment.Workloads); err != nil {
		return err
	}
	return o.printAssessment(p, assessment)
}

// readDump is like readWideView, for a dump; without one it reads the cluster.
func (o *options) readDump(ctx context.Context, from string, scope lister.Scope) (*report.View, *lister.Objects, error) {
	if from == "" {
		return o.readWideView(ctx, scope)
	}
	listed, err := lister.Load(ctx, from, o.In, scope)
	if err != nil {
		return nil, nil, fmt.Errorf("--from: %w", err)
	}
	if len(listed.Missing) > 0 {
		o.warn("the dump has no %s: if the cluster has some, add them to the dump", strings.Join(listed.Missing, ", "))
	}
	if len(listed.Unused) > 0 {
		o.warn("not used: %s", comment(report.SomeOf(listed.Unused)))
	}
	current, err := defaultPolicy()
	if o.configFile != "" {
		current, err = o.readPolicyFile(o.configFile)
	}
	if err != nil {
		return nil, nil, err
	}
	o.source.Policy = current.source
	view, err := o.viewOf(listed, current)
	return view, listed, err
}

func (o *options) printAssessment(p *printing, a *report.Assessment) error {
	if p.format() == patchFormat {
		return printPatches(o.Out, a)
	}
	o.warnPrices(a.NodePrices)
	if !p.humanReadable() {
		refs := refsOf(a.Workloads, func(w *report.AssessedWorkload) report.Ref { return w.Ref })
		return p.object(o.Out, "SpotAssessment", &o.source, a, refs)
	}
	if !p.noHeaders {
		o.printSummary(a)
	}
	t := newWorkloadTable(a.Namespace, "class", "desired", "floor", "ready", "without spot", "without spot then", "effect then",
		"usd/month", "usd/month then")
	t.columns(wide, "floor source")
	t.columns(always, "reasons", "offers")
	for i := range a.Workloads {
		w := &a.Workloads[i]
		t.workload(w.Ref, w.Class, w.Desired, w.Floor, w.Ready, report.OptionalCount(w.WithoutSpot),
			report.OptionalCount(w.WithoutSpotThen), w.EffectThen, report.OptionalDollars(w.Now), report.OptionalDollars(w.Then), w.FloorSource,
			p.reasons(w.Reasons), p.reasons(offersOf(w)))
	}
	if err := p.table(o.Out, t); err != nil || p.noHeaders {
		return err
	}
	if slices.ContainsFunc(a.Workloads, func(w report.AssessedWorkload) bool { return w.Patch != nil }) {
		fmt.Fprintln(o.Out, "\nNext: repeat with -o patch > opt-in.sh, and read the commands that make the workloads opt in.")
	}
	return nil
}

func offersOf(w *report.AssessedWorkload) (texts []string) {
	for _, offer := range w.Offers {
		texts = append(texts, offer.String())
	}
	return texts
}

func (o *options) clusterName(from string) string {
	if from != "" {
		return "Dump " + from
	}
	config, err := o.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil || config.CurrentContext == "" {
		return "Cluster without a context"
	}
	return "Context " + cmp.Or(*o.flags.Context, config.CurrentContext)
}

func (o *options) printSummary(a *report.Assessment) {
	if len(a.Workloads) == 0 {
		fmt.Fprintln(o.Out, o.source.qualified("No workload"+ofNamespace(a.Namespace)+" has pods to assess."))
		return
	}
	fmt.Fprintf(o.Out, "%s. %s: %s.\n", a.Cluster, report.Count(len(a.Workloads), "workload", "workloads"), a.Summary())
	fmt.Fprintf(o.Out, "%s no ready replica outside spot (%s); with the policy, %d. Jobs that retry do not count.",
		report.Count(a.Outages, "workload has", "workloads have"), report.Count(a.SpotNodes, "spot node", "spot nodes"), a.OutagesThen)
	if a.UnknownOutages > 0 {
		fmt.Fprintf(o.Out, " It is unknown for %s.", report.Count(a.UnknownOutages, "workload", "workloads"))
	}
	fmt.Fprintln(o.Out)
	if a.Now == nil {
		fmt.Fprint(o.Out, "The costs of no workload are known.")
	} else {
		fmt.Fprintf(o.Out, "They cost %.2f USD a month; with the policy and these changes, %.2f.", *a.Now, *a.Then)
		if a.UnknownCosts > 0 {
			fmt.Fprintf(o.Out, " The costs of %s are unknown.", report.Count(a.UnknownCosts, "workload", "workloads"))
		}
	}
	fmt.Fprintf(o.Out, "\nPrices: %s. Policy: %s. Mode: %s (--mode %s needs no second scheduler).\n\n",
		a.Prices, o.source.Policy.Name, a.Mode, report.ModeKeepScheduler)
}

// printPatches prints a shell script that makes the workloads opt in, one after the other. A
// command is a comment if something should change first. All texts from the cluster are in comments
// without line breaks, or are names that the API server and lister.Load have checked.
func printPatches(out io.Writer, a *report.Assessment) error {
	printed := map[string]bool{} // several Jobs may have one CronJob
	var script strings.Builder
	for i := range a.Workloads {
		w := &a.Workloads[i]
		if w.Class == report.OptedIn {
			continue
		}
		fmt.Fprintf(&script, "# %s in namespace %s: %s\n", comment(w.Ref.String()), comment(w.Namespace), w.Class)
		for _, reason := range slices.Concat(w.Reasons, offersOf(w)) {
			fmt.Fprintf(&script, "#   %s\n", comment(reason))
		}
		if w.Patch == nil {
			continue
		}
		command := fmt.Sprintf("kubectl patch %s %s -n %s --type=strategic -p %s\n", w.Patch.Kind, w.Patch.Name, w.Patch.Namespace,
			shellQuoted(string(w.Patch.Patch)))
		if kind := w.Patch.Kind; kind == "deployment" || kind == "statefulset" { // one rollout at a time
			command += fmt.Sprintf("kubectl rollout status %s %s -n %s --timeout=10m || exit 1\n", kind, w.Patch.Name, w.Patch.Namespace)
		}
		if printed[command] {
			continue
		}
		printed[command] = true
		if w.Class == report.NeedsChange {
			command = "# " + strings.ReplaceAll(command, "\nkubectl", "\n# kubectl")
		}
		script.WriteString(command)
	}
	_, err := io.WriteString(out, script.String())
	return err
}

// comment replaces the characters that could end a comment or change a terminal.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// shellQuoted returns text as one word of a POSIX shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
