// Command performance measures how fast this project's scheduler places the pods of realistic
// workloads, and how well it spreads them. It compares it with kube-scheduler in configurations
// that are common today. etcd, the API server and the schedulers are real processes. Neither a
// controller manager nor a kubelet runs, so the scheduler has the whole machine. In every round
// each arm places the same workloads once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

func main() {
	if isCeiling() {
		runCeiling()
	}
	frame.Main("bench", func(ctx context.Context) error {
		options, err := parse(os.Args[1:], os.Stderr)
		if err != nil {
			return frame.Usage{Err: err}
		}
		return run(ctx, options, os.Stdout, os.Stderr)
	})
}

// bench measures at one number of nodes.
type bench struct {
	options          options
	plane            *lab.ControlPlane
	client           kubernetes.Interface
	clientConnection map[string]any // of every scheduler
	nodes            []lab.NodeSpec
	workloads        []workload
}

// run measures every size, and reports each after its measurement.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	root, err := lab.FindRoot()
	if err != nil {
		return err
	}
	var report Report
	if report.Facts, err = readFacts(ctx, root); err != nil {
		return err
	}
	for _, nodes := range o.nodes {
		size, err := runSize(ctx, o, root, nodes, stderr)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		report.Sizes = append(report.Sizes, size)
		if err := errors.Join(size.print(stdout, report.Facts), report.save(o.json)); err != nil {
			return err
		}
	}
	explain(stdout, o.arms)
	return nil
}

// runSize measures all rounds at one number of nodes.
func runSize(ctx context.Context, o options, root string, nodes int, stderr io.Writer) (_ Size, err error) {
	plane, err := lab.Start(ctx, lab.Options{
		Root: root, NoControllers: true, APIServerFlags: []string{"--delete-collection-workers=16"},
	})
	if err != nil {
		return Size{}, err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	fmt.Fprintf(stderr, "creating %d nodes\n", nodes)
	b, err := prepare(ctx, o, plane, nodes)
	if err != nil {
		return Size{}, err
	}
	size := Size{Nodes: nodes, Layout: o.layout.explain, Pods: o.pods, Workloads: len(b.workloads)}
	for round := range o.rounds {
		// Each round starts with another arm, because the order may affect the result.
		start := round % len(o.arms)
		for _, a := range slices.Concat(o.arms[start:], o.arms[:start]) {
			m, err := b.measure(ctx, round+1, a)
			if err != nil {
				return Size{}, fmt.Errorf("arm %s, round %d: %w", a.name, round+1, err)
			}
			fmt.Fprintf(stderr, "%d nodes, round %d of %d, %s: %.0f pods/s\n", nodes, round+1, o.rounds, a.name, m.PodsPerSecond)
			size.Measurements = append(size.Measurements, *m)
		}
	}
	size.Ratios = map[string]map[string]Ratios{}
	for _, own := range compared {
		size.Ratios[own] = size.ratios(own)
	}
	return size, nil
}

// prepare creates the objects that all rounds share: the nodes and a namespace.
func prepare(ctx context.Context, o options, plane *lab.ControlPlane, nodes int) (*bench, error) {
	config := plane.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	connection, err := clientConnection(plane.Root, o.qps)
	if err != nil {
		return nil, err
	}
	_, err = client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{spot.OptInLabel: spot.KeepScheduler}, // for the arm any-scheduler
		}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}
	b := &bench{
		options: o, plane: plane, client: client, clientConnection: connection,
		nodes: o.layout.nodes(nodes), workloads: workloadsFor(o.pods),
	}
	return b, plane.CreateNodes(ctx, b.early()...)
}

// clientConnection returns the clientConnection of every scheduler: the shipped configuration's, or
// one with this limit.
func clientConnection(root string, qps int) (map[string]any, error) {
	if qps > 0 {
		return map[string]any{"qps": qps, "burst": 2 * qps}, nil
	}
	file := filepath.Join(root, "config", "scheduler-config.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the shipped configuration: %w", err)
	}
	var config struct {
		ClientConnection map[string]any `json:"clientConnection"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return config.ClientConnection, nil
}
