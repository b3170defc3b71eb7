package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// readHistogram reads the latencies from the scheduler's metrics.
func (m *Measurement) readHistogram(ctx context.Context, process *lab.Process) error {
	const name = "scheduler_scheduling_attempt_duration_seconds"
	text, err := process.Metrics(ctx)
	if err != nil {
		return err
	}
	families, err := testutil.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: reading the metrics: %w", process.Name, err)
	}
	for _, metric := range families[name].GetMetric() {
		if testutil.LabelsMatch(metric, map[string]string{"result": "scheduled"}) {
			histogram := testutil.Histogram{Histogram: metric.GetHistogram()}
			m.LatencyP50Milliseconds = 1000 * histogram.Quantile(0.5)
			m.LatencyP99Milliseconds = 1000 * histogram.Quantile(0.99)
			return nil
		}
	}
	return fmt.Errorf("%s: no metric %s of scheduled pods", process.Name, name)
}

// saveProfile saves CPU profiles of the next 20 s of the arm's scheduler and of the API server,
// which shares the machine, if -profile is set.
func (b *bench) saveProfile(ctx context.Context, process *lab.Process, m *Measurement) error {
	if b.options.profile == "" {
		return nil
	}
	save := func(program string, profile []byte, err error) error {
		file := filepath.Join(b.options.profile, fmt.Sprintf("cpu-%s-%s-%d-nodes-round-%d.pprof", m.Arm, program, len(b.nodes), m.Round))
		if err == nil {
			err = os.WriteFile(file, profile, 0o644)
		}
		if err != nil {
			return fmt.Errorf("saving a profile of the %s: %w", program, err)
		}
		return nil
	}
	const path, seconds = "/debug/pprof/profile", "20"
	var group errgroup.Group
	group.Go(func() error {
		profile, err := process.Get(ctx, path+"?seconds="+seconds)
		return save("scheduler", []byte(profile), err)
	})
	group.Go(func() error {
		profile, err := b.client.CoreV1().RESTClient().Get().AbsPath(path).Param("seconds", seconds).DoRaw(ctx)
		return save("apiserver", profile, err)
	})
	return group.Wait()
}
