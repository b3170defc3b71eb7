package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// TestEveryArm runs the quick size. Every arm must place all pods, and its report must be
// consistent. The test does not check speed.
func TestEveryArm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	o, err := parse([]string{"-nodes", "100", "-pods", "300", "-rounds", "1", "-limit", "1m", "-json", file}, t.Output())
	must(t, err)
	var table strings.Builder
	err = run(t.Context(), o, &table, t.Output())
	t.Log(table.String())
	must(t, err)

	data, err := os.ReadFile(file)
	must(t, err)
	var report Report
	must(t, json.Unmarshal(data, &report))
	if report.Facts.KubeScheduler == "" || !strings.Contains(report.Facts.SpotAwareScheduler, "spot-aware-scheduler") {
		t.Errorf("facts: %+v", report.Facts)
	}
	if len(report.Sizes) != 1 {
		t.Fatalf("%d sizes, want 1", len(report.Sizes))
	}
	var measured []string
	for _, m := range report.Sizes[0].Measurements {
		measured = append(measured, m.Arm)
		if !strings.Contains(table.String(), "\n"+m.Arm+" ") {
			t.Errorf("%s is not in the table", m.Arm)
		}
		if m.Seconds <= 0 || m.PodsPerSecond <= 0 || m.LatencyP99Milliseconds <= 0 || m.CPUSeconds <= 0 || m.PeakMiB <= 0 {
			t.Errorf("not measured: %+v", m)
		}
		if m.LatencyP99Milliseconds < m.LatencyP50Milliseconds || m.RateP99 > m.RateP50 {
			t.Errorf("p99 is better than p50: %+v", m)
		}
		// Check the purpose of the arms: a floor with the other pods on spot, no preference, and a
		// preference without a floor.
		switch spread := m.Spread; m.Arm {
		case spotAware, gated, anyScheduler:
			if spread.SpotUsed < 1 || spread.WithoutOnDemand > 0 {
				t.Errorf("%s: %+v", m.Arm, spread)
			}
		case "affinity":
			if spread.OnSpot < 0.95 {
				t.Errorf("%s: %+v", m.Arm, spread)
			}
		case "default", "default-no-spreading", bindOnly, bindAndEvent:
			if spread.OnSpot < 0.5 || spread.OnSpot > 0.9 {
				t.Errorf("%s: %+v, want about 70 %% on spot", m.Arm, spread)
			}
		}
	}
	if diff := cmp.Diff(namesOf(arms), measured); diff != "" {
		t.Errorf("arms (-want +got)\n%s", diff)
	}
	for _, own := range compared {
		if n, want := len(report.Sizes[0].Ratios[own]), len(arms)-1; n != want {
			t.Errorf("%d ratios of %s, want %d", n, own, want)
		}
	}
}

// TestRate creates pods while the scheduler and the controller run, and checks the measured waiting
// times.
func TestRate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	o, err := parse([]string{"-nodes", "100", "-pods", "300", "-rate", "100", "-rounds", "1", "-limit", "1m", "-arms", anyScheduler, "-json", file}, t.Output())
	must(t, err)
	var table strings.Builder
	err = run(t.Context(), o, &table, t.Output())
	t.Log(table.String())
	must(t, err)
	if !strings.Contains(table.String(), "placed p99") {
		t.Error("the table has no column for the time from creation to binding")
	}
	data, err := os.ReadFile(file)
	must(t, err)
	var report Report
	must(t, json.Unmarshal(data, &report))
	m := report.Sizes[0].Measurements[0]
	if m.PlacedP50Milliseconds <= 0 || m.PlacedP99Milliseconds < m.PlacedP50Milliseconds {
		t.Errorf("from creation to binding: p50 %v ms, p99 %v ms", m.PlacedP50Milliseconds, m.PlacedP99Milliseconds)
	}
	// A binding is at least half a millisecond later: it needs an attempt of the scheduler and a
	// request.
	if m.GateP50Milliseconds <= 0 || m.GateP99Milliseconds < m.GateP50Milliseconds || m.GateP50Milliseconds > m.PlacedP50Milliseconds-0.5 {
		t.Errorf("from creation to the removal of the gate: p50 %v ms, p99 %v ms", m.GateP50Milliseconds, m.GateP99Milliseconds)
	}
	// It may exceed 100 because of pods that were created during the start of the scheduler.
	if m.PodsPerSecond > 200 {
		t.Errorf("%.0f pods/s are placed, but 100 are created", m.PodsPerSecond)
	}
}

// TestBrokenArm has workloads below their floor under the name of this project's scheduler, and a
// scheduler that does not place all pods in time.
func TestBrokenArm(t *testing.T) {
	for name, test := range map[string]struct {
		arm   arm
		limit string
		want  []string // in the error
	}{
		"below the floor": {
			arm{name: spotAware, schedulerName: stockScheduler, config: "default.yaml", shape: preferSpot}, "1m",
			[]string{"arm spot-aware, round 1", "8 of 8 workloads", "below their floor"},
		},
		"off spot": {
			arm{name: spotAware, schedulerName: stockScheduler, config: "default.yaml", shape: func(pod *corev1.PodTemplateSpec) {
				pod.Spec.NodeSelector = map[string]string{lab.CapacityLabel: lab.OnDemand}
			}}, "1m",
			[]string{"arm spot-aware, round 1", "0.0 % of the pods", "at least 99 %"},
		},
		"not placed": {
			arm{name: "missing", schedulerName: "missing", config: "default.yaml"}, "2s",
			[]string{"arm missing, round 1", "0 of 300 pods are bound", "its log ends with"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse([]string{"-nodes", "100", "-pods", "300", "-rounds", "1", "-limit", test.limit}, t.Output())
			must(t, err)
			o.arms = []arm{test.arm}
			err = run(t.Context(), o, t.Output(), t.Output())
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}

func TestFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string // in the error
	}{
		"no such checkout":        {[]string{"-before", "/nowhere"}, []string{"-before", `"/nowhere"`, "bin/spot-aware-scheduler"}},
		"invalid number of nodes": {[]string{"-nodes", "100,many"}, []string{"-nodes", `"many"`, "at least 20"}},
		"too few nodes":           {[]string{"-nodes", "5"}, []string{"-nodes", `"5"`, "at least 20"}},
		"no pods":                 {[]string{"-pods", "0"}, []string{"-pods", "0", "at least 2"}},
		"one pod":                 {[]string{"-pods", "1"}, []string{"-pods", "1", "at least 2"}},
		"an arm twice":            {[]string{"-arms", "default,default"}, []string{"-arms", "default", "once"}},
		"no rounds":               {[]string{"-rounds", "-1"}, []string{"-rounds", "-1", "at least 1"}},
		"unknown arm":             {[]string{"-arms", "default,best"}, []string{"-arms", `"best"`, "bind-and-event"}},
		"unknown layout":          {[]string{"-layout", "all"}, []string{"-layout", `"all"`, "rare-on-demand"}},
		"no time":                 {[]string{"-limit", "0s"}, []string{"-limit", "0s", "above 0"}},
		"negative rate":           {[]string{"-rate", "-5"}, []string{"-rate", "-5", "at least 1"}},
		"negative limit":          {[]string{"-qps", "-5"}, []string{"-qps", "-5", "at least 1"}},
		"no such folder":          {[]string{"-profile", "no/such"}, []string{"-profile", "no/such", "existing folder"}},
		"no such folder for JSON": {[]string{"-json", "no/such/file"}, []string{"-json", "no/such", "existing folder"}},
		"an argument":             {[]string{"100"}, []string{`"100"`, "flags only"}},
		"more pods than room":     {[]string{"-nodes", "5000,100"}, []string{"-pods", "3000", "at most 1595", "100 nodes"}},
		"rare class too small":    {[]string{"-layout", "rare-spot", "-nodes", "500"}, []string{"-pods", "3000", "at most 1375"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.args, t.Output())
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %s", err, part)
				}
			}
		})
	}
	o, err := parse([]string{"-nodes", "100,5000", "-pods", "300", "-arms", "affinity,spot-aware"}, t.Output())
	must(t, err)
	if diff := cmp.Diff([]int{100, 5000}, o.nodes); diff != "" {
		t.Errorf("nodes (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"affinity", "spot-aware"}, namesOf(o.arms)); diff != "" {
		t.Errorf("arms (-want +got)\n%s", diff)
	}
}

func TestMain(m *testing.M) {
	if isCeiling() {
		runCeiling()
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
