// Command memory measures the scheduler's memory in a large cluster. It runs the built binary as
// shipped on a real API server. The cluster has nodes, Deployments with past revisions, and bound
// pods. Several binaries are measured one after the other on the same cluster.
//
// One object of each kind is created through the API server. It has all fields of a real object:
// defaults, status, and managed fields. Copies are written directly to etcd, which takes a minute.
// The API server would take an hour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

type options struct {
	nodes, pods, deployments, revisions, placed int
	binaries                                    []string // NAME=FILE
	limit, profiles                             string

	controller    bool
	churn         int
	settle, lasts time.Duration
}

// measurement is the memory of one binary.
type measurement struct {
	name string
	// Resident memory in bytes: synced with full caches, after after some placements, and peak
	// since the start.
	synced, after, peak uint64
	// heap is the live heap after the last garbage collection.
	heap float64
}

func main() {
	frame.Main("memory", func(ctx context.Context) error {
		o, err := parse(os.Args[1:], os.Stderr)
		if err != nil {
			return frame.Usage{Err: err}
		}
		measured, atRest, err := run(ctx, o, os.Stderr)
		if err != nil {
			return err
		}
		if o.controller {
			return reportRest(os.Stdout, o, atRest)
		}
		return report(os.Stdout, o, measured)
	})
}

func parse(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.IntVar(&o.nodes, "nodes", 5_000, "number of nodes, 70 % spot")
	flags.IntVar(&o.pods, "pods", 100_000, "number of pods on nodes, the same for each Deployment")
	flags.IntVar(&o.deployments, "deployments", 5_000, "number of Deployments")
	flags.IntVar(&o.revisions, "revisions", 10, "number of past ReplicaSets of each Deployment")
	flags.IntVar(&o.placed, "placed", 500, "number of pods that the scheduler places before the measurement: one more for each of as "+
		"many Deployments")
	flags.StringVar(&o.limit, "gomemlimit", "", "GOMEMLIMIT of the program, such as 900MiB; none if empty")
	flags.BoolVar(&o.controller, "controller", false, "measure spot-controller at rest instead of the scheduler, including its processor time")
	flags.IntVar(&o.churn, "churn", 20, "with -controller: number of pods that change per second")
	flags.DurationVar(&o.settle, "settle", 30*time.Second, "with -controller: how long pods change before the measurement")
	flags.DurationVar(&o.lasts, "lasts", 2*time.Minute, "with -controller: duration of the measurement")
	flags.StringVar(&o.profiles, "profiles", "", "folder for a heap profile of each binary; none if empty")
	flags.Func("binary", "NAME=FILE of a program to measure; repeatable (default bin/spot-aware-scheduler or bin/spot-controller). "+
		"A controller in the bin folder of a checkout gets the configuration of that checkout",
		func(text string) error {
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
		return o, errors.New("expected flags only, at least 1 node, 1 Deployment and 1 pod for each, 1 pod to place but no more than " +
			"Deployments, " +
			"1 pod that changes per second, and a positive duration")
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
		if err := os.Setenv("GOMEMLIMIT", o.limit); err != nil { // for processes that start from here on, not for the API server
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

// measure starts a scheduler, has it place pods, and returns its memory.
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
	// A leading scheduler has full caches. The Lease of the previous scheduler may still be valid
	// for a while.
	for kind, want := range map[string]int{"nodes": c.nodes, "pods": c.pods()} {
		enough := func(got float64) bool { return int(got) >= want }
		if err := until(ctx, process, "scheduler_cache_size", map[string]string{"type": kind}, enough); err != nil {
			return m, fmt.Errorf("waiting for %d %s in its cache: %w", want, kind, err)
		}
	}
	synced, err := frame.ResourcesOf(process.PID)
	if err != nil {
		return m, err
	}
	if err := c.place(ctx); err != nil {
		return m, err
	}
	after, err := frame.ResourcesOf(process.PID)
	if err != nil {
		return m, err
	}
	m.synced, m.after, m.peak = synced.Resident, after.Resident, after.Peak
	if m.heap, err = live.Metric(ctx, process, "go_gc_heap_live_bytes", nil); err != nil {
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

// place has the scheduler place pods, and deletes them again.
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

// until waits until a metric of process meets a condition.
func until(ctx context.Context, process *lab.Process, name string, labels map[string]string, ok func(float64) bool) error {
	return live.Until(ctx, 10*time.Minute, func() error {
		got, err := live.Metric(ctx, process, name, labels) // a controller is ready before it serves metrics
		if err == nil && !ok(got) {
			err = fmt.Errorf("%s is %g", name, got)
		}
		return errors.Join(process.Err(), err)
	})
}

func report(w io.Writer, o options, measured []measurement) error {
	limit := o.limit
	if limit == "" {
		limit = "none"
	}
	fmt.Fprintf(w, "MiB with %d nodes, %d pods, %d Deployments with %d ReplicaSets each; GOMEMLIMIT %s\n",
		o.nodes, o.pods/o.deployments*o.deployments, o.deployments, o.revisions+1, limit)
	var rows [][]string
	for _, m := range measured {
		rows = append(rows, []string{m.name, mib(m.synced), mib(m.after), mib(m.peak), mib(uint64(m.heap))})
	}
	return frame.Table(w, []string{"scheduler", "resident with full caches", "after placements", "at most", "live heap"}, rows...)
}

func mib(bytes uint64) string { return fmt.Sprint(bytes >> 20) }
