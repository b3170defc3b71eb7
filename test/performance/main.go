// Command performance measures how fast this project's scheduler places the pods of real workloads, and how well it spreads them, beside
// kube-scheduler with what people do today. etcd, the API server and the schedulers are real processes; there is no controller manager
// and no kubelet, so that the scheduler has the machine. In every round every arm places the same workloads once.
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// options are the flags.
type options struct {
	nodes        []int
	pods, rounds int
	arms         []arm
	layout       layout
	limit        time.Duration
	qps          int
	profile      string
	json         string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends this at once, and everything it started with it
	options, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(2)
	}
	if err := run(ctx, options, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var nodes, armNames, layoutName string
	flags := flag.NewFlagSet("performance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&nodes, "nodes", "5000", "numbers of nodes, comma-separated; each is measured on a control plane of its own")
	flags.IntVar(&o.pods, "pods", 3000, "number of pods")
	flags.IntVar(&o.rounds, "rounds", 3, "number of rounds, in each of which every arm runs once")
	flags.StringVar(&armNames, "arms", strings.Join(namesOf(arms), ","), "arms to measure, comma-separated")
	flags.StringVar(&layoutName, "layout", "mixed", "which nodes are spot: mixed, rare-spot or rare-on-demand")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "the longest that an arm may take to place all pods")
	flags.IntVar(&o.qps, "qps", 0, "limit of every scheduler's requests per second, and twice that at once (default: the shipped configuration's)")
	flags.StringVar(&o.profile, "profile", "", "existing folder for CPU profiles of this project's scheduler; they slow it down a little")
	flags.StringVar(&o.json, "json", "", "file that takes all figures as JSON")
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
		o.arms = append(o.arms, arms[i])
	}
	var known bool
	if o.layout, known = layoutNamed(layoutName); !known {
		return o, fmt.Errorf("-layout: %q: expected mixed, rare-spot or rare-on-demand", layoutName)
	}
	for name, value := range map[string]int{"pods": o.pods, "rounds": o.rounds} {
		if value < 1 {
			return o, fmt.Errorf("-%s: %d: expected at least 1", name, value)
		}
	}
	if o.qps < 0 {
		return o, fmt.Errorf("-qps: %d: expected a positive number", o.qps)
	}
	if room := slices.Min(o.nodes) / 20 * podsPerNode / 2; o.pods > room {
		return o, fmt.Errorf("-pods: %d: expected at most %d, half of what 5 %% of %d nodes hold, so that no class of nodes fills up",
			o.pods, room, slices.Min(o.nodes))
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

// bench is the bench at one number of nodes.
type bench struct {
	options          options
	plane            *lab.ControlPlane
	client           kubernetes.Interface
	clientConnection map[string]any // of every scheduler
	nodes            []lab.NodeSpec
	workloads        []workload
}

// run measures every size and reports each as it is done.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	var report Report
	for _, nodes := range o.nodes {
		size, err := runSize(ctx, o, nodes, &report.Facts, stderr)
		if err != nil {
			return err
		}
		report.Sizes = append(report.Sizes, size)
		if err := size.print(stdout, report.Facts); err != nil {
			return err
		}
	}
	return report.save(o.json)
}

// runSize measures all rounds at one number of nodes.
func runSize(ctx context.Context, o options, nodes int, facts *Facts, stderr io.Writer) (_ Size, err error) {
	size := Size{Nodes: nodes, Layout: o.layout.explain, Pods: o.pods}
	fail := func(err error) (Size, error) { return size, fmt.Errorf("%d nodes: %w", nodes, err) }
	plane, err := lab.Start(ctx, lab.Options{
		NoControllers: true, APIServerFlags: []string{"--delete-collection-workers=16"},
	})
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if *facts, err = readFacts(ctx, plane); err != nil {
		return fail(err)
	}
	config := plane.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	b := &bench{options: o, plane: plane, client: client, nodes: o.layout.nodes(nodes), workloads: workloadsFor(o.pods)}
	size.Workloads = len(b.workloads)
	if b.clientConnection, err = connection(plane.Root, o.qps); err != nil {
		return fail(err)
	}
	fmt.Fprintf(stderr, "creating %d nodes\n", nodes)
	if err := plane.CreateNodes(ctx, b.nodes...); err != nil {
		return fail(err)
	}
	for round := range o.rounds {
		// Each round begins with another arm: what comes first may have it better or worse.
		start := round % len(o.arms)
		for _, a := range slices.Concat(o.arms[start:], o.arms[:start]) {
			m, err := b.measure(ctx, round+1, a)
			if err != nil {
				return fail(err)
			}
			fmt.Fprintf(stderr, "%d nodes, round %d of %d, %s: %.0f pods/s\n", nodes, round+1, o.rounds, a.name, m.PodsPerSecond)
			size.Measurements = append(size.Measurements, *m)
		}
	}
	size.Ratios = size.ratios()
	return size, nil
}

// connection returns the clientConnection for every scheduler: that of the shipped configuration, or one with this limit.
func connection(root string, qps int) (map[string]any, error) {
	if qps > 0 {
		return map[string]any{"qps": qps, "burst": 2 * qps}, nil
	}
	data, err := os.ReadFile(filepath.Join(root, "config", "scheduler-config.yaml"))
	if err != nil {
		return nil, err
	}
	var config struct {
		ClientConnection map[string]any `json:"clientConnection"`
	}
	err = yaml.Unmarshal(data, &config)
	return config.ClientConnection, err
}
