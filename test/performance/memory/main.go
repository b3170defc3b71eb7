// Command memory measures how much memory the scheduler takes in a large cluster: the built binary as it ships, on a real API server, with
// nodes, Deployments that have past revisions, and pods on nodes. Several binaries are measured one after the other on the same cluster.
//
// One object of each kind is made through the API server, so that it has all that real ones have: defaults, status, and the list of who set
// which field. Copies of it are written to etcd itself, which takes a minute where the API server would take an hour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

type options struct {
	nodes, pods, deployments, revisions, placed int
	binaries                                    []string // NAME=FILE
	limit, profiles                             string

	controller    bool
	churn         int
	settle, lasts time.Duration
}

// measurement is what one binary took.
type measurement struct {
	name string
	// synced is the resident memory with full caches, after is that after some placements, and peak is the most since the start; in bytes.
	synced, after, peak uint64
	// heap is what the garbage collector left at its last cycle.
	heap float64
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	measured, atRest, err := run(ctx, o, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
	if o.controller {
		reportRest(os.Stdout, o, atRest)
	} else {
		report(os.Stdout, o, measured)
	}
}

func parse(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.IntVar(&o.nodes, "nodes", 5_000, "number of nodes, 70 % of them spot")
	flags.IntVar(&o.pods, "pods", 100_000, "number of pods on nodes, the same for each Deployment")
	flags.IntVar(&o.deployments, "deployments", 5_000, "number of Deployments")
	flags.IntVar(&o.revisions, "revisions", 10, "number of past ReplicaSets of each Deployment")
	flags.IntVar(&o.placed, "placed", 500, "number of pods that the scheduler places before its memory is read: one more of so many Deployments")
	flags.StringVar(&o.limit, "gomemlimit", "", "GOMEMLIMIT of the program, such as 900MiB; none if empty")
	flags.BoolVar(&o.controller, "controller", false, "measure spot-controller at rest instead of the scheduler: its processor time, too")
	flags.IntVar(&o.churn, "churn", 20, "with -controller: how many pods change in a second")
	flags.DurationVar(&o.settle, "settle", 30*time.Second, "with -controller: how long pods change before it is measured")
	flags.DurationVar(&o.lasts, "lasts", 2*time.Minute, "with -controller: how long it is measured")
	flags.StringVar(&o.profiles, "profiles", "", "folder for a heap profile of each binary; none if empty")
	flags.Func("binary", "NAME=FILE, a program to measure, may be given more than once (default bin/spot-aware-scheduler or bin/spot-controller)", func(text string) error {
		if name, file, ok := strings.Cut(text, "="); !ok || name == "" || file == "" {
			return errors.New("expected NAME=FILE")
		}
		o.binaries = append(o.binaries, text)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.nodes < 1 || o.deployments < 1 || o.pods < o.deployments || o.revisions < 0 ||
		o.placed < 1 || o.placed > o.deployments || o.churn < 1 || o.lasts <= 0 {
		return o, errors.New("expected flags only, at least 1 node, 1 Deployment and 1 pod for each, 1 pod to place but no more than Deployments, " +
			"1 pod that changes in a second, and some time to measure")
	}
	return o, nil
}

// run returns the measurements of schedulers, or of controllers at rest.
func run(ctx context.Context, o options, progress io.Writer) (measured []measurement, atRest []rest, err error) {
	cp, err := lab.Start(ctx, lab.Options{NoControllers: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	c := &cluster{options: o, client: client}
	if err := c.fill(ctx, cp.Etcd()); err != nil {
		return nil, nil, fmt.Errorf("filling the cluster: %w", err)
	}
	fmt.Fprintf(progress, "%d nodes, %d Deployments, %d ReplicaSets and %d pods after %s\n",
		o.nodes, o.deployments, o.deployments*(o.revisions+1), c.pods(), time.Since(began).Round(time.Second))
	if o.limit != "" {
		if err := os.Setenv("GOMEMLIMIT", o.limit); err != nil { // of what is started from here on: not of the API server
			return nil, nil, err
		}
	}
	if len(o.binaries) == 0 {
		name := "spot-aware-scheduler"
		if o.controller {
			name = "spot-controller"
		}
		o.binaries = []string{name + "=" + filepath.Join(cp.Root, "bin", name)}
	}
	for _, binary := range o.binaries {
		name, file, _ := strings.Cut(binary, "=")
		if o.controller {
			r, err := c.measureController(ctx, cp, name, file)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(progress, "%s: %.3f cores, %d MiB\n", name, r.cores, r.after>>20)
			atRest = append(atRest, r)
			continue
		}
		m, err := c.measure(ctx, cp, name, file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(progress, "%s: %d MiB\n", name, m.after>>20)
		measured = append(measured, m)
	}
	return measured, atRest, nil
}

// measure starts a scheduler, has it place pods, and returns what it took.
func (c *cluster) measure(ctx context.Context, cp *lab.ControlPlane, name, file string) (m measurement, err error) {
	m.name = name
	if file, err = filepath.Abs(file); err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	process, err := cp.StartScheduler(ctx, lab.SchedulerOptions{Name: name, Binary: file})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	// A scheduler that leads has full caches, too; the last one's Lease may still be valid for a while.
	for what, want := range map[string]int{"nodes": c.nodes, "pods": c.pods()} {
		if err := until(ctx, process, fmt.Sprintf(`scheduler_cache_size\{type="%s"\} (\S+)`, what), func(got float64) bool { return int(got) >= want }); err != nil {
			return m, fmt.Errorf("waiting for %d %s in its cache: %w", want, what, err)
		}
	}
	if m.synced, _, err = resident(process.PID); err != nil {
		return m, err
	}
	if err := c.place(ctx); err != nil {
		return m, err
	}
	if m.after, m.peak, err = resident(process.PID); err != nil {
		return m, err
	}
	metrics, err := process.Metrics(ctx)
	if err != nil {
		return m, err
	}
	if m.heap, err = value(metrics, `go_gc_heap_live_bytes (\S+)`); err != nil {
		return m, err
	}
	if c.profiles == "" {
		return m, nil
	}
	profile, err := process.Get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(c.profiles, "heap-"+name+".pprof"), []byte(profile), 0o644)
}

// place has the scheduler place pods, and removes them again.
func (c *cluster) place(ctx context.Context) error {
	pods := c.client.CoreV1().Pods
	for i := range c.placed {
		pod := c.pending(i)
		if _, err := pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	waiting := metav1.ListOptions{FieldSelector: "spec.nodeName="}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := pods(v1.NamespaceAll).List(ctx, waiting)
		return err == nil && len(list.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %d pods to be placed: %w", c.placed, err)
	}
	for i := range c.placed {
		pod := c.pending(i)
		if err := pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
			return err
		}
	}
	return nil
}

// resident returns the resident memory of a process now and at most since its start.
func resident(pid int) (now, peak uint64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := process.NewStatus()
	return status.VmRSS, status.VmHWM, err
}

// until waits until a metric of process fulfils a condition.
func until(ctx context.Context, process *lab.Process, pattern string, ok func(float64) bool) error {
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		metrics, err := process.Metrics(ctx)
		if err != nil {
			return false, process.Err() // a controller is ready before it serves metrics
		}
		got, err := value(metrics, pattern)
		return err == nil && ok(got), nil // it comes with the first scheduling cycle
	})
}

// value returns the number in metrics that the group of pattern matches.
func value(metrics, pattern string) (float64, error) {
	match := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(metrics)
	if match == nil {
		return 0, fmt.Errorf("no metric matches %s", pattern)
	}
	return strconv.ParseFloat(match[1], 64)
}

func report(w io.Writer, o options, measured []measurement) {
	limit := o.limit
	if limit == "" {
		limit = "none"
	}
	fmt.Fprintf(w, "MiB with %d nodes, %d pods, %d Deployments with %d ReplicaSets each; GOMEMLIMIT %s\n",
		o.nodes, o.pods/o.deployments*o.deployments, o.deployments, o.revisions+1, limit)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "scheduler\tresident with full caches\tafter placements\tat most\tlive heap")
	for _, m := range measured {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\n", m.name, m.synced>>20, m.after>>20, m.peak>>20, m.heap/(1<<20))
	}
	t.Flush()
}
