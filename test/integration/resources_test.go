package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestResourceRequests measures the scheduler's usage with 300 nodes and 3,000 pods, and compares
// it with the resources of the Deployment. The requests must cover the steady state, in which 10
// pods are replaced per second. The memory limit must be at least 1.5 times the peak, which occurs
// while all pods are placed at once.
func TestResourceRequests(t *testing.T) {
	const perWorkload, workloads, replacedPerSecond = 100, 30, 10
	d := shippedDeployment(t, "spot-aware-scheduler")
	container := d.Spec.Template.Spec.Containers[0]
	s := start(t, slices.Concat(live.OnDemand(100, 15), live.Spot(200, 15)))

	want := map[string]split{}
	began, before := time.Now(), usage(t, s.Scheduler)
	for i := range workloads {
		name := fmt.Sprintf("load-%d", i)
		s.Deploy(name, perWorkload, live.Annotated(minOnDemand, "30%"))
		want[name] = split{OnDemand: 30, Spot: 70}
	}
	s.Eventually(manyPods, s.haveSplits(want))
	placed := usage(t, s.Scheduler)
	t.Logf("placing %d pods: %.1f CPU seconds in %s, at most %d MiB", workloads*perWorkload,
		(placed.cpu - before.cpu).Seconds(), time.Since(began).Round(time.Second), placed.peak>>20)

	began = time.Now()
	const seconds = 10
	ticker := time.NewTicker(time.Second / replacedPerSecond)
	defer ticker.Stop()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	now := int64(0)
	var deleting sync.WaitGroup
	for _, pod := range pods[:seconds*replacedPerSecond] {
		<-ticker.C
		deleting.Go(func() {
			if err := client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Error(err)
			}
		})
	}
	deleting.Wait()
	s.Eventually(soon, s.haveSplits(want))
	after := usage(t, s.Scheduler)
	cores := (after.cpu - placed.cpu).Seconds() / time.Since(began).Seconds()
	t.Logf("replacing %d pods per second: %.3f cores, %d MiB", replacedPerSecond, cores, after.memory>>20)

	requests, limits := container.Resources.Requests, container.Resources.Limits
	if got := requests.Cpu().AsApproximateFloat64(); got < cores {
		t.Errorf("requests.cpu: %s, but the scheduler used %.3f", requests.Cpu(), cores)
	}
	if got := requests.Memory().Value(); got < after.memory {
		t.Errorf("requests.memory: %s, but the scheduler used %d MiB", requests.Memory(), after.memory>>20)
	}
	if got := limits.Memory().Value(); got < after.peak*3/2 {
		t.Errorf("limits.memory: %s, but the scheduler's peak is %d MiB and the limit must be at least 1.5 times that", limits.Memory(), after.peak>>20)
	}
	if _, ok := limits[v1.ResourceCPU]; ok {
		t.Error("limits.cpu is set: a throttled scheduler delays every pod")
	}
}

// used is the resource usage of a process.
type used struct {
	cpu          time.Duration // since its start
	memory, peak int64         // resident bytes now, and their peak since its start
}

// usage reads the resource usage of a process from /proc.
func usage(t *testing.T, p *lab.Process) used {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(p.PID))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	live.Must(t, err)
	// The fields after the program's name in parentheses start with the third. Fields 14 and 15 are
	// user and system time in ticks. Linux reports 100 ticks per second to user space (proc(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var result used
	for _, ticks := range fields[14-3 : 16-3] {
		n, err := strconv.ParseInt(ticks, 10, 64)
		live.Must(t, err)
		result.cpu += time.Duration(n) * time.Second / 100
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	live.Must(t, err)
	for line := range strings.Lines(string(status)) {
		for name, into := range map[string]*int64{"VmRSS:": &result.memory, "VmHWM:": &result.peak} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
				live.Must(t, err)
				*into = kib << 10
			}
		}
	}
	if result.memory == 0 || result.peak == 0 {
		t.Fatalf("%s: no VmRSS or VmHWM:\n%s", proc, status)
	}
	return result
}
