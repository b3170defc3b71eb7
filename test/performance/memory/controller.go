package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// rest is the resource usage of a controller that has nothing to do.
type rest struct {
	measurement
	// cores is its CPU time per second. rounds is the number of rounds per second, and round is the
	// average duration of a round.
	cores, rounds float64
	round         time.Duration
}

const (
	// leads is how long a controller may take to complete its first rounds.
	leads = time.Minute
	// heartbeat is how often a kubelet reports the status of a node that does not change.
	heartbeat = 5 * time.Minute
)

// measureController starts a controller and returns its resource usage. During the measurement,
// churn pods change per second, and each node sends its heartbeats.
func (c *cluster) measureController(ctx context.Context, cp *lab.ControlPlane, name, file string) (r rest, err error) {
	r.name = name
	if file, err = filepath.Abs(file); err != nil {
		return r, err
	}
	process, err := cp.StartController(ctx, lab.ControllerOptions{Binary: file, ConfigFile: configOf(file)})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	synced, err := frame.ResourcesOf(process.PID)
	if err != nil {
		return r, err
	}
	r.synced = synced.Resident
	ctx, cancel := context.WithTimeout(ctx, leads+c.settle+c.lasts+time.Minute)
	defer cancel()
	const rounds = "spot_aware_scheduler_controller_plan_duration_seconds"
	if err := until(ctx, process, rounds+"_count", nil, func(n float64) bool { return n >= 2 }); err != nil {
		return r, fmt.Errorf("waiting for its first rounds: %w", err)
	}
	churned := make(chan error, 1)
	churning, stop := context.WithCancel(ctx)
	defer stop()
	go func() { churned <- c.change(churning) }()

	type reading struct {
		at                time.Time
		cpu, rounds, took float64
	}
	read := func() (at reading, err error) {
		used, err := frame.ResourcesOf(process.PID)
		if err != nil {
			return at, err
		}
		at.at, at.cpu = time.Now(), used.CPU
		if at.rounds, err = live.Metric(ctx, process, rounds+"_count", nil); err != nil {
			return at, err
		}
		at.took, err = live.Metric(ctx, process, rounds+"_sum", nil)
		return at, err
	}
	pause(ctx, c.settle)
	before, err := read()
	if err != nil {
		return r, err
	}
	pause(ctx, c.lasts)
	after, err := read()
	if err != nil {
		return r, err
	}
	stop()
	if err := <-churned; err != nil {
		return r, fmt.Errorf("changing pods and nodes: %w", err)
	}
	seconds := after.at.Sub(before.at).Seconds()
	r.cores, r.rounds = (after.cpu-before.cpu)/seconds, (after.rounds-before.rounds)/seconds
	r.round = time.Duration((after.took - before.took) / max(after.rounds-before.rounds, 1) * float64(time.Second))
	used, err := frame.ResourcesOf(process.PID)
	if err != nil {
		return r, err
	}
	r.after, r.peak = used.Resident, used.Peak
	r.heap, err = live.Metric(ctx, process, "go_gc_heap_live_bytes", nil)
	return r, err
}

// configOf returns the controller's configuration of the checkout whose bin folder contains file. A
// controller rejects fields of later versions. Empty: file is in no such folder.
func configOf(file string) string {
	config := filepath.Join(filepath.Dir(filepath.Dir(file)), "config", "controller-config.yaml")
	if _, err := os.Stat(config); err != nil {
		return ""
	}
	return config
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// change alternately changes pods and nodes until ctx is done.
func (c *cluster) change(ctx context.Context) error {
	patch := func(i int) error {
		pod := c.podOf(i*31%c.deployments, i%c.replicas())
		text := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/changed":"%d"}}}`, i)
		_, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, text, metav1.PatchOptions{})
		return err
	}
	beat := func(i int) error {
		text := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"lastHeartbeatTime":%q}]}}`, v1.NodeReady,
			time.Now().UTC().Format(time.RFC3339))
		_, err := c.client.CoreV1().Nodes().PatchStatus(ctx, nodeName(i%c.nodes), text)
		return err
	}
	pods := time.NewTicker(time.Second / time.Duration(c.churn))
	defer pods.Stop()
	nodes := time.NewTicker(heartbeat / time.Duration(c.nodes))
	defer nodes.Stop()
	for pod, node := 0, 0; ; {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-pods.C:
			pod++
			err = patch(pod)
		case <-nodes.C:
			node++
			err = beat(node)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func reportRest(w io.Writer, o options, measured []rest) error {
	fmt.Fprintf(w, "%d nodes, %d pods, %d Deployments with %d ReplicaSets each; %d pods change in a second, each node every %s\n",
		o.nodes, o.pods/o.deployments*o.deployments, o.deployments, o.revisions+1, o.churn, heartbeat)
	var rows [][]string
	for _, m := range measured {
		rows = append(rows, []string{
			m.name, fmt.Sprintf("%.3f", m.cores), fmt.Sprintf("%.2f", m.rounds), m.round.Round(time.Millisecond).String(),
			mib(m.after), mib(m.peak), mib(uint64(m.heap)),
		})
	}
	return frame.Table(w, []string{"controller", "cores", "rounds/s", "time of one", "MiB resident", "at most", "live heap"}, rows...)
}
