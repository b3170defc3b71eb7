package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// Report contains all measurements.
type Report struct {
	Facts Facts  `json:"facts"`
	Sizes []Size `json:"sizes"`
}

// Facts describe the machine and the programs.
type Facts struct {
	Cores int `json:"cores"`
	// The versions that the two schedulers print. The version of this project's scheduler contains
	// its commit.
	KubeScheduler      string `json:"kubeScheduler"`
	SpotAwareScheduler string `json:"spotAwareScheduler"`
}

// Size contains the measurements at one number of nodes.
type Size struct {
	Nodes        int           `json:"nodes"`
	Layout       string        `json:"layout"`
	Pods         int           `json:"pods"`
	Workloads    int           `json:"workloads"`
	Measurements []Measurement `json:"measurements"`
	// Ratios compare this project's scheduler, and kube-scheduler with this project's controller,
	// with each other arm in the same round. The keys are the names of both arms.
	Ratios map[string]map[string]Ratios `json:"ratios"`
}

// Ratios are the figures of an arm divided by the figures of another arm in the same round.
type Ratios struct {
	PodsPerSecond         frame.Range `json:"podsPerSecond"`
	CPUMillisecondsPerPod frame.Range `json:"cpuMillisecondsPerPod"`
}

func readFacts(ctx context.Context, root string) (Facts, error) {
	facts := Facts{Cores: runtime.NumCPU()}
	for binary, version := range map[string]*string{
		stockBinary(root): &facts.KubeScheduler,
		filepath.Join(root, "bin", "spot-aware-scheduler"): &facts.SpotAwareScheduler,
	} {
		out, err := exec.CommandContext(ctx, binary, "--version").Output()
		if err != nil {
			return facts, fmt.Errorf("getting the version of %s: %w", binary, err)
		}
		*version = strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	}
	return facts, nil
}

// of returns a figure of an arm for all rounds in order.
func (s Size) of(arm string, figure func(Measurement) float64) []float64 {
	var values []float64
	for _, m := range s.Measurements {
		if m.Arm == arm {
			values = append(values, figure(m))
		}
	}
	return values
}

func podsPerSecond(m Measurement) float64 { return m.PodsPerSecond }

// perPod returns a CPU time in milliseconds per pod.
func (s Size) perPod(seconds func(Measurement) float64) func(Measurement) float64 {
	return func(m Measurement) float64 { return seconds(m) * 1000 / float64(s.Pods) }
}

func cpuSeconds(m Measurement) float64 { return m.CPUSeconds }

// compared are the arms that are compared with all others.
var compared = []string{spotAware, anyScheduler}

// ratios compares an arm with each other arm.
func (s Size) ratios(arm string) map[string]Ratios {
	ratios := map[string]Ratios{}
	own := s.of(arm, podsPerSecond)
	for _, m := range s.Measurements {
		if _, known := ratios[m.Arm]; m.Arm == arm || known || len(own) == 0 {
			continue
		}
		ratios[m.Arm] = Ratios{
			PodsPerSecond:         frame.PairedRatio(own, s.of(m.Arm, podsPerSecond)),
			CPUMillisecondsPerPod: frame.PairedRatio(s.of(arm, cpuSeconds), s.of(m.Arm, cpuSeconds)),
		}
	}
	return ratios
}

// column is a figure in the tables: its median over the rounds, with its range.
type column struct {
	title, format string
	figure        func(Measurement) float64
}

var speed = []column{
	{"pods/s", "%.0f", podsPerSecond},
	{"p50", "%.0f", func(m Measurement) float64 { return m.RateP50 }},
	{"p99", "%.0f", func(m Measurement) float64 { return m.RateP99 }},
	{"latency p50 ms", "%.1f", func(m Measurement) float64 { return m.LatencyP50Milliseconds }},
	{"p99 ms", "%.1f", func(m Measurement) float64 { return m.LatencyP99Milliseconds }},
	{"last event s", "%.1f", func(m Measurement) float64 { return m.EventsSeconds }},
	{"peak MiB", "%.0f", func(m Measurement) float64 { return m.PeakMiB }},
}

// waiting is measured only for pods that are created while the scheduler runs.
var waiting = []column{
	{"placed p50 ms", "%.0f", func(m Measurement) float64 { return m.PlacedP50Milliseconds }},
	{"placed p99 ms", "%.0f", func(m Measurement) float64 { return m.PlacedP99Milliseconds }},
	{"gate p50 ms", "%.0f", func(m Measurement) float64 { return m.GateP50Milliseconds }},
	{"gate p99 ms", "%.0f", func(m Measurement) float64 { return m.GateP99Milliseconds }},
}

var spread = []column{
	{"skew over nodes", "%.0f", func(m Measurement) float64 { return float64(m.Spread.Node.Max) }},
	{"zones", "%.0f", func(m Measurement) float64 { return float64(m.Spread.Zone.Max) }},
	{"pools", "%.0f", func(m Measurement) float64 { return float64(m.Spread.Pool.Max) }},
	{"spot pools", "%.0f", func(m Measurement) float64 { return float64(m.Spread.SpotPool.Max) }},
	{"mean over nodes", "%.1f", func(m Measurement) float64 { return m.Spread.Node.Mean }},
	{"zones", "%.1f", func(m Measurement) float64 { return m.Spread.Zone.Mean }},
	{"pools", "%.1f", func(m Measurement) float64 { return m.Spread.Pool.Mean }},
	{"spot pools", "%.1f", func(m Measurement) float64 { return m.Spread.SpotPool.Mean }},
	{"on spot", "%.1f %%", func(m Measurement) float64 { return 100 * m.Spread.OnSpot }},
	{"of spot budget", "%.1f %%", func(m Measurement) float64 { return 100 * m.Spread.SpotUsed }},
	{"without on-demand", "%.0f", func(m Measurement) float64 { return float64(m.Spread.WithoutOnDemand) }},
}

// print writes the tables of one size.
func (s *Size) print(out io.Writer, facts Facts) error {
	fmt.Fprintf(out, "\n%d nodes (%s), %d pods of %d workloads; %d cores, kube-scheduler %s, spot-aware-scheduler %s\n\n", s.Nodes, s.Layout,
		s.Pods, s.Workloads, facts.Cores, facts.KubeScheduler, facts.SpotAwareScheduler)
	var names []string
	for _, m := range s.Measurements {
		if !slices.Contains(names, m.Arm) {
			names = append(names, m.Arm)
		}
	}
	speed := append(slices.Clone(speed), column{"CPU ms per pod", "%.2f", s.perPod(cpuSeconds)},
		column{"other", "%.2f", s.perPod(func(m Measurement) float64 { return m.OtherCPUSeconds })},
		column{"API server", "%.2f", s.perPod(func(m Measurement) float64 { return m.APIServerCPUSeconds })},
		column{"etcd", "%.2f", s.perPod(func(m Measurement) float64 { return m.EtcdCPUSeconds })})
	if slices.Max(s.of(names[0], waiting[1].figure)) > 0 {
		speed = slices.Concat(speed, waiting)
	}
	for _, columns := range [][]column{speed, spread} {
		header, rows := []string{"arm"}, [][]string{}
		for _, c := range columns {
			header = append(header, c.title)
		}
		for _, name := range names {
			row := []string{name}
			for _, c := range columns {
				row = append(row, frame.RangeOf(s.of(name, c.figure)).Text(c.format))
			}
			rows = append(rows, row)
		}
		if err := frame.Table(out, header, rows...); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	for _, own := range compared {
		if len(s.Ratios[own]) == 0 {
			continue
		}
		fmt.Fprintf(out, "%s in relation to each other arm in the same round:\n", own)
		var rows [][]string
		for _, name := range names {
			if ratio, ok := s.Ratios[own][name]; ok {
				rows = append(rows, []string{name, ratio.PodsPerSecond.Text("%.3f"), ratio.CPUMillisecondsPerPod.Text("%.3f")})
			}
		}
		if err := frame.Table(out, []string{"arm", "pods/s", "CPU ms per pod"}, rows...); err != nil {
			return err
		}
	}
	return nil
}

// explain describes the arms and the columns of the tables.
func explain(out io.Writer, arms []arm) {
	fmt.Fprintln(out)
	for _, a := range arms {
		fmt.Fprintf(out, "%-20s  %s\n", a.name, a.explain)
	}
	fmt.Fprint(out, `
Each figure is the median over the rounds, with its range in brackets.
pods/s          from the first binding to the last; p50 and p99: the rate that 50 % and 99 % of the seconds in between reached
latency         from taking a pod from the queue to its binding, from the scheduler's own histogram
placed, gate    from the request that creates a pod to its binding, and to the removal of its gate; only pods that are created after
                the first binding
last event      seconds from the first binding until each binding has its event
CPU, peak       of the scheduler's process: CPU milliseconds per pod, from the first binding to the last event, and its peak memory;
                other, API server, etcd: the same of the extender or the controller, of kube-apiserver and of etcd
skew            pods of a workload in its fullest domain minus pods in its emptiest: maximum and mean over all workloads;
                over all nodes, zones and pools (instance type and zone), and over the spot nodes of each pool
of spot budget  share of the pods on spot among the pods that may run there if every workload has one pod on on-demand
without         workloads that have no pod on on-demand
`)
}

// save writes the report as JSON. It does nothing if file is empty.
func (r Report) save(file string) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
