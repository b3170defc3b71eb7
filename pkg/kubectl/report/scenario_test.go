package report_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// TestScenarios runs testdata/*.txt. Each directive is followed by a cluster in the notation of
// package clustertest, and by the expected answer, which the flag -rewrite replaces. Directives:
//
//	cluster              objects that the clusters of all later directives of the file contain
//	status               the statuses
//	explain KIND/NAME    the explanation, without settings
//	settings KIND/NAME   the settings in the explanation that are not from the profile
//	placement POD...     why pods are on their nodes
//	lose NODES...        the loss of nodes
//	surplus              the replicas on on-demand that could be on spot
//	resume               the effect of the end of a pause of everything, with advisory.enabled
//	pause                the effect of a pause, for=DURATION
//	assess               the class of each workload without the product, its floor, reasons, offers,
//	                     and whether it has a command; # if the command is a comment.
//	                     mode=MODE is the mode
//
// NAME=VALUE sets a setting of the policy, gateTimeout=DURATION its gateTimeout, and nodes-unknown
// means that nodes could not be read. gating-disabled means that gating.enabled is false. With
// controller, all pods are ready, and a controller runs as rebalancerOf describes; -n means that
// only the namespace was read.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" { // failed histories of other tests
			return
		}
		shared := ""
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				shared = d.Input + "\n"
				return ""
			}
			view, args := scenarioView(t, d, shared+d.Input)
			return strings.Join(answer(t, d, view, args), "\n")
		})
	})
}

// scenarioView returns the View of a directive, and the arguments that do not describe it.
func scenarioView(t *testing.T, d *datadriven.TestData, cluster string) (view *report.View, args []string) {
	policy, overrides, nodesUnknown, gatingDisabled := basic(), []string(nil), false, false
	for _, arg := range d.CmdArgs {
		switch {
		case slices.ContainsFunc(decision.Settings, func(s decision.Setting) bool { return s.Name == arg.Key }):
			overrides = append(overrides, arg.Key, arg.Vals[0])
		case arg.Key == "gateTimeout":
			timeout, err := time.ParseDuration(arg.Vals[0])
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			policy.GateTimeout = timeout
		case arg.Key == "nodes-unknown":
			nodesUnknown = true
		case arg.Key == "gating-disabled":
			gatingDisabled = true
		case arg.Key == "controller":
			view = readyView(t, cluster)
		default:
			args = append(args, strings.Join(append([]string{arg.Key}, arg.Vals...), "="))
		}
	}
	if len(overrides) > 0 {
		policy.Rules = []decision.Rule{{Name: "scenario", Overrides: clustertest.Overrides(overrides...)}}
	}
	if d.Cmd == "assess" {
		view = assessedView(t, cluster, editPods(func(pod *v1.Pod) {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}))
		if d.HasArg("mode") {
			d.ScanArgs(t, "mode", (*string)(&view.Mode))
		}
		return view, args
	}
	if view == nil {
		gating := lister.AssumedGating()
		gating.Enabled = !gatingDisabled
		view = viewWith(t, list(t, cluster, lister.Scope{IncludeScaledToZero: true}), policy, gating)
	} else if args = rebalancerOf(t, d, view, args); d.HasArg("-n") {
		view.Namespace, args = clustertest.Namespace, nil
	}
	view.NodesUnknown = nodesUnknown
	return view, args
}

func answer(t *testing.T, d *datadriven.TestData, view *report.View, args []string) (lines []string) {
	switch d.Cmd {
	case "status":
		all, others := view.Statuses()
		lines = statusLines(all)
		if others > 0 {
			lines = append(lines, fmt.Sprintf("other workloads: %d", others))
		}
	case "explain", "settings":
		kind, name, _ := strings.Cut(args[0], "/")
		e, err := view.Explain(kind, clustertest.Namespace, name)
		if err != nil {
			return []string{"error: " + err.Error()}
		}
		if d.Cmd == "explain" {
			return explanationLines(e)
		}
		for _, s := range e.Settings {
			if s.Source == "the profile" || s.Source == "the default" {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s from %s", s.Name, s.Value, s.Source))
		}
	case "placement":
		for _, pod := range args {
			e, err := view.Explain("pod", clustertest.Namespace, pod)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			_, reason, _ := strings.Cut(e.Answer, "): ")
			lines = append(lines, pod+": "+reason)
		}
	case "lose":
		return lossLines(t, d, view, args)
	case "resume":
		return effect(d, view, &safety.Pause{}, nil)
	case "pause":
		pause := &safety.Pause{}
		if d.HasArg("for") {
			var text string
			d.ScanArgs(t, "for", &text)
			duration, err := time.ParseDuration(text)
			if pause.Until = (&metav1.Time{Time: clustertest.Now.Add(duration)}); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		return effect(d, view, nil, pause)
	case "assess":
		for _, w := range view.Assess(pricing.BuiltIn(), false).Workloads {
			command := "no command"
			switch {
			case w.Patch != nil && w.Class == report.NeedsChange:
				command = "# patch " + w.Patch.Kind + " " + w.Patch.Name
			case w.Patch != nil:
				command = "patch " + w.Patch.Kind + " " + w.Patch.Name
			}
			lines = append(lines, fmt.Sprintf("%s %s, floor %d of %d, left %s then %s: %s %q %q", w.Ref, w.Class, w.Floor, w.Desired,
				report.OptionalCount(w.WithoutSpot), report.OptionalCount(w.WithoutSpotThen), command, w.Reasons, w.Offers))
		}
	case "surplus":
		for _, w := range view.Savings(pricing.New(nil, "none")).Workloads {
			if w.Surplus > 0 {
				lines = append(lines, fmt.Sprintf("%s %d", w.Name, w.Surplus))
			}
		}
	default:
		d.Fatalf(t, "unknown directive %q", d.Cmd)
	}
	return lines
}

// effect returns View.Effect, with the default of the controller and advisory.enabled. With
// interruption-disabled, interruption.enabled is false.
func effect(d *datadriven.TestData, view *report.View, before, after *safety.Pause) []string {
	view.Interruption = controller.Default().Interruption
	view.Interruption.Advisory.Enabled = true
	view.Interruption.Enabled = !d.HasArg("interruption-disabled")
	return view.Effect(before, after)
}

func lossLines(t *testing.T, d *datadriven.TestData, view *report.View, args []string) []string {
	for _, text := range args {
		if err := report.CheckLoss(text); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	result, err := view.SimulateLoss(args)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	lines := []string{fmt.Sprintf("%d nodes, %d pods", result.Nodes, result.Pods)}
	for _, l := range result.Workloads {
		lines = append(lines, fmt.Sprintf("%s %s %d to %d, room for %d", l.Ref, l.Effect, l.Before, l.After, l.Recoverable))
	}
	return lines
}

// explanationLines returns an explanation as lines, without its settings.
func explanationLines(e *report.Explanation) []string {
	lines := []string{fmt.Sprintf("%s: %s", e.Pod, e.Answer)}
	if e.Workload != nil {
		line := fmt.Sprintf("%s %s: floor %d of %d, budget %d", e.Workload, e.Revision, e.Floor, e.Desired, e.Budget)
		if e.OnSpot != nil {
			line += fmt.Sprintf(", %d on spot, %d on on-demand", *e.OnSpot, *e.OnOnDemand)
		}
		if e.Ordinal != nil {
			line += fmt.Sprintf(", ordinal %d", *e.Ordinal)
		}
		lines = append(lines, line)
	}
	if e.Assigned+e.Granted != "" {
		lines = append(lines, fmt.Sprintf("assigned %q, granted %q", e.Assigned, e.Granted))
	}
	if e.Disruptions != "" {
		lines = append(lines, "disruptions: "+e.Disruptions)
	}
	for _, g := range e.Nodes {
		lines = append(lines, fmt.Sprintf("%s %s %v %t %q", g.Capacity, g.Pool, g.Names, g.Accepts, g.Reasons))
	}
	for _, remedy := range e.Remedies {
		lines = append(lines, "- "+remedy)
	}
	return lines
}

// statusLines returns each status as a line.
func statusLines(all []report.Status) (lines []string) {
	for _, s := range all {
		line := fmt.Sprintf("%s %s: %d of %d", s.Ref, s.State, s.Floor, s.Desired)
		if s.NoFloor {
			line = fmt.Sprintf("%s %s: no floor of %d", s.Ref, s.State, s.Desired)
		}
		if s.Spot != nil {
			line += fmt.Sprintf(", %d+%d, left %d and %d without %s", *s.OnDemand, *s.Spot, *s.WithoutSpot, *s.WithoutPool, s.LargestPool)
		}
		if s.Waiting > 0 {
			line += fmt.Sprintf(", %d wait", s.Waiting)
		}
		lines = append(lines, fmt.Sprintf("%s %q", line, s.Reasons))
	}
	return lines
}
