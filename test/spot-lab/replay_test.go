package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab/replay"
)

// inputFile writes an input file and returns its path.
func inputFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReplayRejects checks the exit status and the message for invalid input. No control plane is
// started for it.
func TestReplayRejects(t *testing.T) {
	const header = "dataset,pool,offset_seconds,capacity\n"
	unsorted := inputFile(t, "unsorted.csv", header+"d,a,10,1\nd,a,5,1\nd,a,20,end\n")
	negative := inputFile(t, "negative.csv", header+"d,a,0,-4\nd,a,20,end\n")
	capacity := inputFile(t, "capacity.csv", header+"d,a,0,4\nd,a,90000,end\n")
	prices := inputFile(t, "prices.csv", "instance_type,allocatable_cpu_m,allocatable_memory_mib,max_pods,on_demand_usd_per_hour,spot_usd_per_hour_est\n"+
		"a,4000,16000,58,0.2,\n")
	services := inputFile(t, "services.csv", "service,max_replicas,cpu_cores,memory_gib\nx,1,1,1\n")
	changes := inputFile(t, "changes.csv", "service,offset_seconds,replicas\nx,0,1\n")
	all := func(capacity string, more ...string) []string {
		return append([]string{"--capacity", capacity, "--dataset", "d", "--prices", prices, "--services", services, "--changes", changes}, more...)
	}
	out := filepath.Join(t.TempDir(), "out")
	for name, test := range map[string]struct {
		args       []string
		wantStatus int
		wantStderr string
	}{
		"unknown flag":      {[]string{"--speed", "1"}, exitUsage, "--speed"},
		"unsorted rows":     {all(unsorted), exitFailed, unsorted + ":3: "},
		"negative capacity": {all(negative), exitFailed, negative + ":2: capacity"},
		"missing price":     {all(capacity, "--instance-type", "a"), exitFailed, prices + ":2: instance type \"a\" has no spot_usd_per_hour_est"},
		"unknown type":      {all(capacity), exitFailed, "m5.xlarge"},
		"unknown dataset":   {[]string{"--dataset", "other"}, exitFailed, "expected one of sample"},
		"no such file":      {all("/nowhere.csv"), exitFailed, "/nowhere.csv"},
		"file missing":      {[]string{"--capacity", capacity, "--dataset", "d"}, exitFailed, "--prices"},
		"unknown arm":       {[]string{"--arms", "controller,magic"}, exitFailed, "magic"},
		"from":              {[]string{"--from", "noon"}, exitFailed, "--from"},
		"hours":             {[]string{"--hours", "-1"}, exitFailed, "--hours"},
		"short window":      {[]string{"--hours", "1e-9"}, exitFailed, "--hours"},
		"no output folder":  {[]string{"--out", ""}, exitFailed, "--out"},
		"two kinds of seed": {[]string{"--seed", "1", "--seeds", "2"}, exitFailed, "--seeds"},
		"empty comparison":  {[]string{"--compare", ""}, exitFailed, "--compare"},
		"signed budget":     {[]string{"--budget", "+50%"}, exitFailed, "--budget"},
		"seed twice":        {[]string{"--seeds", "1,1"}, exitFailed, "--seeds"},
		"seeds":             {[]string{"--seeds", "one"}, exitFailed, "--seeds"},
		"scale":             {[]string{"--scale", "0"}, exitFailed, "--scale"},
		"setting":           {[]string{"--controller-setting", "calmPeriod"}, exitFailed, "--controller-setting"},
		"output folder":     {[]string{"--out", filepath.Join(capacity, "out")}, exitFailed, "--out"},
		"one report":        {[]string{"--compare", out}, exitFailed, "expected FIRST,SECOND"},
		"no report":         {[]string{"--compare", "/nowhere,/nowhere"}, exitFailed, "reading a report"},
		"binaries missing":  {[]string{"--root", t.TempDir(), "--out", out}, exitFailed, "hack/tools.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			if got := run(t.Context(), append([]string{"replay"}, test.args...), io.Discard, &stderr); got != test.wantStatus {
				t.Errorf("exit status %d, want %d", got, test.wantStatus)
			}
			if !strings.Contains(stderr.String(), test.wantStderr) {
				t.Errorf("standard error %q, want %q in it", stderr.String(), test.wantStderr)
			}
		})
	}

	// The failed arm of "binaries missing" has left a partial report.
	var stdout strings.Builder
	if got := run(t.Context(), []string{"replay", "--compare", out + "," + out}, &stdout, io.Discard); got != 0 {
		t.Errorf("comparing reports: exit status %d", got)
	}
	if !strings.Contains(stdout.String(), "PARTIAL") || !strings.Contains(stdout.String(), "The parameters are equal") {
		t.Errorf("the comparison:\n%s", stdout.String())
	}
}

// TestReplay replays three hours of the sample on real control planes: this project keeps all
// floors, and an arm without floors is reported as broken.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	out := t.TempDir()
	var stdout, stderr strings.Builder
	args := []string{"replay", "--arms", "controller,broken-floor", "--from", "0h", "--hours", "3", "--out", out}
	if got := run(t.Context(), args, &stdout, &stderr); got != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", got, stderr.String())
	}
	report, err := replay.ReadReport(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Victims) == 0 || report.Partial {
		t.Errorf("%d removed nodes, partial %t", len(report.Victims), report.Partial)
	}
	ours, broken := report.Arm("controller"), report.Arm("broken-floor")
	if len(ours.Broken) > 0 || ours.Moves == 0 {
		t.Errorf("with the controller: %v, %d moves", ours.Broken, ours.Moves)
	}
	if cost := ours.PodHoursCost / report.Bound.PodHoursCost; cost < 0.95 || cost > 1.05 {
		t.Errorf("the cost is %.3f of the bound, want about 1", cost)
	}
	if len(broken.Broken) == 0 {
		t.Error("an arm without floors is not reported as broken")
	}
}
