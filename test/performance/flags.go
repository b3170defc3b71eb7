package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the values of the flags.
type options struct {
	nodes        []int
	pods, rounds int
	rate         int
	arms         []arm
	layout       layout
	limit        time.Duration
	qps          int
	profile      string
	json         string
}

// parse parses the command line.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var nodes, armNames, checkout, layoutName string
	flags := flag.NewFlagSet("performance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&nodes, "nodes", "5000", "numbers of nodes, comma-separated; each is measured on a separate control plane")
	flags.IntVar(&o.pods, "pods", 3000, "number of pods")
	flags.IntVar(&o.rate, "rate", 0,
		"pods created per second while the scheduler runs, to measure the time from creation to binding; 0: all are created before")
	flags.IntVar(&o.rounds, "rounds", 3, "number of rounds; every arm runs once per round")
	flags.StringVar(&armNames, "arms", strings.Join(namesOf(arms), ","), "arms to measure, comma-separated")
	flags.StringVar(&checkout, "before", "",
		"folder of another checkout of this project with its scheduler in bin, to be measured as the arm before (default: none)")
	flags.StringVar(&layoutName, "layout", "mixed", "which nodes are spot: mixed, rare-spot or rare-on-demand")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "the longest that an arm may take to place all pods")
	flags.IntVar(&o.qps, "qps", 0,
		"limit of every scheduler's requests per second, and twice that at once (default: the shipped configuration's)")
	flags.StringVar(&o.profile, "profile", "",
		"existing folder for CPU profiles of the schedulers and of the API server, which slow them down a little (default: none)")
	flags.StringVar(&o.json, "json", "", "file for all figures as JSON (default: none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: expected flags only", flags.Arg(0))
	}
	for _, text := range strings.Split(nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 20 {
			return o, fmt.Errorf("-nodes: %q: expected comma-separated numbers of at least 20", text)
		}
		o.nodes = append(o.nodes, n)
	}
	for _, name := range strings.Split(armNames, ",") {
		i := slices.IndexFunc(arms, func(a arm) bool { return a.name == name })
		if i < 0 {
			return o, fmt.Errorf("-arms: %q: expected some of %s", name, strings.Join(namesOf(arms), ", "))
		}
		if slices.ContainsFunc(o.arms, func(a arm) bool { return a.name == name }) {
			return o, fmt.Errorf("-arms: %q: expected every arm once", name)
		}
		o.arms = append(o.arms, arms[i])
	}
	if checkout != "" {
		if _, err := os.Stat(filepath.Join(checkout, "bin", "spot-aware-scheduler")); err != nil {
			return o, fmt.Errorf("-before: %q: expected a checkout with bin/spot-aware-scheduler: %w", checkout, err)
		}
		o.arms = append(o.arms, before(checkout))
	}
	i := slices.IndexFunc(layouts, func(l layout) bool { return l.name == layoutName })
	if i < 0 {
		return o, fmt.Errorf("-layout: %q: expected mixed, rare-spot or rare-on-demand", layoutName)
	}
	o.layout = layouts[i]
	if o.pods < 2 {
		return o, fmt.Errorf("-pods: %d: expected at least 2, to measure the time between them", o.pods)
	}
	if o.rate < 0 {
		return o, fmt.Errorf("-rate: %d: expected at least 1, or 0 to create all pods before the scheduler starts", o.rate)
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("-rounds: %d: expected at least 1", o.rounds)
	}
	if o.qps < 0 {
		return o, fmt.Errorf("-qps: %d: expected at least 1, or 0 for the shipped configuration's", o.qps)
	}
	if o.limit <= 0 {
		return o, fmt.Errorf("-limit: %s: expected a time above 0", o.limit)
	}
	fewest := slices.Min(o.nodes)
	if room := o.layout.room(fewest) / 2; o.pods > room {
		return o, fmt.Errorf("-pods: %d: expected at most %d, half the room of the rarer class among %d nodes, so that no class fills up",
			o.pods, room, fewest)
	}
	// Fail now rather than after the first minutes of measurement.
	for name, folder := range map[string]string{"profile": o.profile, "json": filepath.Dir(o.json)} {
		if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
			return o, fmt.Errorf("-%s: %s: expected an existing folder", name, folder)
		}
	}
	return o, nil
}

func namesOf(arms []arm) []string {
	names := make([]string, len(arms))
	for i, a := range arms {
		names[i] = a.name
	}
	return names
}
