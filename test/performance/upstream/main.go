// Upstream compares the shipped profile with kube-scheduler's default profile, on the workloads of
// scheduler_perf, Kubernetes' own benchmark of its scheduler. A round runs every workload with each
// profile, each in a separate process and in alternating order. Upstream prints pods per second and
// the CPU time of the process, which includes the API server, and exits with status 1 if a workload
// fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

const (
	exitUsage = 2
	// schedulerPerfFolder is the folder of scheduler_perf in the module k8s.io/kubernetes.
	schedulerPerfFolder = "test/integration/scheduler_perf"
)

func main() {
	harness := flag.String("harness", "", "`program` that go test -c builds from ./harness")
	kubernetes := flag.String("kubernetes", "", "`folder` of the module k8s.io/kubernetes")
	config := flag.String("config", "", "`file`: the scheduler's configuration; its first profile is compared with the default one")
	rounds := flag.Int("rounds", 7, "`number` of rounds")
	var testCases, sizes expression
	flag.Var(&testCases, "workloads", "`regexp` of the test cases to run (default: all test cases of this program)")
	flag.Var(&sizes, "size", "`regexp` of the sizes to run for the chosen test cases, by their upstream names (default: one of each)")
	flag.Parse()
	usage := func(err error) {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(exitUsage)
	}
	if flag.NArg() != 0 || *harness == "" || *kubernetes == "" || *config == "" {
		usage(errors.New("expected -harness, -kubernetes and -config, and only flags"))
	}
	if *rounds < 1 {
		usage(fmt.Errorf("-rounds %d: expected 1 or more", *rounds))
	}
	c := comparison{perf: filepath.Join(*kubernetes, schedulerPerfFolder), rounds: *rounds}
	var err error
	if c.harness, err = filepath.Abs(*harness); err != nil {
		usage(fmt.Errorf("-harness: %w", err))
	}
	if c.workloads, err = choose(c.perf, testCases.Regexp, sizes.Regexp); err != nil {
		usage(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := c.compare(ctx, *config); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// expression is a flag with a regular expression. It is nil if the flag is missing or empty.
type expression struct{ *regexp.Regexp }

func (e *expression) String() string { return "" }

func (e *expression) Set(text string) (err error) {
	if text != "" {
		e.Regexp, err = regexp.Compile(text)
	}
	return err
}

// comparison describes the runs.
type comparison struct {
	harness   string // the compiled benchmark
	perf      string // the folder of scheduler_perf
	workloads []workload
	rounds    int
	dir       string // for the files of this comparison
}

// compare runs all rounds with the first profile of a configuration file, prints the results, and
// returns the failures.
func (c *comparison) compare(ctx context.Context, config string) error {
	var err error
	if c.dir, err = os.MkdirTemp("", "upstream"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	shippedConfig := filepath.Join(c.dir, "shipped.yaml")
	if err := writeProfile(shippedConfig, config); err != nil {
		return err
	}
	profiles := []struct{ name, config string }{{stock, ""}, {shipped, shippedConfig}}
	var results []*result
	for _, w := range c.workloads {
		results = append(results, &result{workload: w, rates: map[string][]float64{}, cpu: map[string][]float64{}})
	}
	var failures []error
	for round := range c.rounds {
		for _, r := range results {
			for _, profile := range profiles {
				if r.failed {
					break
				}
				start := time.Now()
				rate, cpu, err := c.run(ctx, r.workload, profile.config)
				if ctx.Err() != nil {
					return errors.New("interrupted; nothing is left running")
				}
				outcome := fmt.Sprintf("%.0f pods/s, %.1f s of CPU time", rate, cpu.Seconds())
				if err != nil {
					r.failed, outcome = true, "failed"
					failures = append(failures, fmt.Errorf("%s with the %s profile: %w", r.workload, profile.name, err))
				}
				r.rates[profile.name] = append(r.rates[profile.name], rate)
				r.cpu[profile.name] = append(r.cpu[profile.name], cpu.Seconds())
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s profile: %s (in a run of %.0f s)\n",
					round+1, c.rounds, r.workload, profile.name, outcome, time.Since(start).Seconds())
			}
		}
		slices.Reverse(profiles)
	}
	report(os.Stdout, results)
	return errors.Join(failures...)
}
