package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// run runs one workload in a separate process, with its own API server and etcd. It returns the
// pods per second that scheduler_perf reports, or 0 if the workload ended before they could be
// measured, and the CPU time of the process.
func (c *comparison) run(ctx context.Context, w workload, schedulerConfig string) (rate float64, cpu time.Duration, err error) {
	dir, err := os.MkdirTemp(c.dir, "run")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	testCases := filepath.Join(dir, "test-cases.yaml")
	if err := writeTestCase(testCases, c.perf, w, schedulerConfig); err != nil {
		return 0, 0, err
	}

	cmd := exec.CommandContext(ctx, c.harness, "-test-cases", testCases, "-data-items-dir", dir, "-perf-scheduling-label-filter=",
		"-test.run=^$", "-test.bench=.", "-test.benchtime=1x")
	cmd.Dir = filepath.Join(c.perf, w.folder)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// An interrupt makes it stop its etcd. Both are in a separate process group, so that only this
	// program forwards Ctrl-C to them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the etcd of a run that could not stop it
	if err != nil {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		return 0, 0, fmt.Errorf("%w; output:\n%s", err, failure(output.Bytes()))
	}
	rate, err = throughput(dir)
	return rate, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// failure returns the relevant part of a failed run's output, which contains the logs of a whole
// control plane.
func failure(output []byte) []byte {
	const most = 4000
	if start := bytes.Index(output, []byte("--- FAIL")); start >= 0 {
		output = output[start:]
		return output[:min(len(output), most)]
	}
	return output[max(0, len(output)-most):]
}

// throughput returns the throughput in the file of results that scheduler_perf wrote.
func throughput(dir string) (float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		return 0, errors.Join(fmt.Errorf("found %d files of results, expected 1", len(files)), err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return 0, err
	}
	var results struct {
		DataItems []struct {
			Data   map[string]float64
			Labels map[string]string
		}
	}
	if err := json.Unmarshal(data, &results); err != nil {
		return 0, fmt.Errorf("results: %w", err)
	}
	if len(results.DataItems) == 0 {
		return 0, errors.New("the workload was not run: scheduler_perf wrote no results")
	}
	for _, item := range results.DataItems {
		if item.Labels["Metric"] == "SchedulingThroughput" {
			return item.Data["Average"], nil
		}
	}
	return 0, nil
}
