package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	// The plugins' args, for the scheduler's own decoder.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

// TestProfile decodes the written configuration like the scheduler. It must be the shipped
// configuration for pods that name no scheduler.
func TestProfile(t *testing.T) {
	const file = "../../../config/scheduler-config.yaml"
	written := filepath.Join(t.TempDir(), "config.yaml")
	if err := writeProfile(written, file); err != nil {
		t.Fatal(err)
	}
	want, got := decode(t, file), decode(t, written)
	if name := got.Profiles[0].SchedulerName; name != "default-scheduler" {
		t.Errorf("schedulerName is %q, want default-scheduler", name)
	}
	got.Profiles[0].SchedulerName = want.Profiles[0].SchedulerName
	if grace := labelGrace(t, got); grace.Duration != 0 {
		t.Errorf("labelGrace is %s, want 0s", grace.Duration)
	}
	*labelGrace(t, got) = *labelGrace(t, want)
	withErrors := cmpopts.IgnoreUnexported(config.ReplicaSafetyArgs{}, config.SpotPreferenceArgs{}) // they store errors of decoding beside their fields
	if diff := cmp.Diff(want, got, withErrors); diff != "" {
		t.Errorf("differs from the shipped configuration by more than the name and labelGrace (-shipped +run):\n%s", diff)
	}
}

// labelGrace returns the field of the first profile's ReplicaSafetyArgs.
func labelGrace(t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration) *metav1.Duration {
	t.Helper()
	for _, plugin := range c.Profiles[0].PluginConfig {
		if args, ok := plugin.Args.(*config.ReplicaSafetyArgs); ok {
			return args.LabelGrace
		}
	}
	t.Fatal("the first profile has no ReplicaSafetyArgs")
	return nil
}

func decode(t *testing.T, file string) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object.(*schedulerconfig.KubeSchedulerConfiguration)
}

// TestWorkloads checks that the pinned version of Kubernetes has each compared workload.
func TestWorkloads(t *testing.T) {
	perf := schedulerPerf(t)
	for _, w := range compared {
		t.Run(w.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "test-cases.yaml")
			if err := writeTestCase(file, perf, w, "some-config.yaml"); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []struct {
				SchedulerConfigPath string
				Workloads           []struct {
					Name         string
					Threshold    any
					FeatureGates map[string]bool
				}
			}
			if err := yaml.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || len(got[0].Workloads) != 1 {
				t.Fatalf("got %+v, want one workload", got)
			}
			if got[0].SchedulerConfigPath != "some-config.yaml" || got[0].Workloads[0].Name != w.size || got[0].Workloads[0].Threshold != nil {
				t.Errorf("got %+v, want %s with some-config.yaml and no threshold", got, w.size)
			}
			if got[0].Workloads[0].FeatureGates["SchedulerQueueingHints"] {
				t.Errorf("got %+v, want the feature gate SchedulerQueueingHints not set to true", got)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	perf := schedulerPerf(t)
	tests := map[string]struct {
		testCase, size *regexp.Regexp
		want           string
	}{
		"a test case": {
			testCase: regexp.MustCompile("Daemonset"),
			want:     "SchedulingDaemonset/15000Nodes_QueueingHintsEnabled",
		},
		"sizes of a test case": {
			testCase: regexp.MustCompile("Churn$"),
			size:     regexp.MustCompile("^1000Nodes|^5000Nodes$"),
			want:     "SchedulingWithMixedChurn/1000Nodes SchedulingWithMixedChurn/5000Nodes",
		},
		"a size of all": {
			size: regexp.MustCompile("^15000Nodes$|^10Nodes$"),
			want: "SchedulingWithMixedChurn/10Nodes SchedulingDaemonset/15000Nodes",
		},
		"nothing": {testCase: regexp.MustCompile("NoSuchCase")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(perf, test.testCase, test.size)
			if (err != nil) != (test.want == "") {
				t.Errorf("error is %v", err)
			}
			var got []string
			for _, w := range chosen {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	w := workload{testCase: "Case", size: "1Node"}
	cpu := map[string][]float64{stock: {4, 2, 2}, shipped: {5, 1, 3}}
	tests := map[string]struct {
		result result
		want   string
	}{
		"odd": {
			result: result{workload: w, rates: map[string][]float64{stock: {100, 200, 50}, shipped: {90, 220, 50}}, cpu: cpu},
			want:   "Case/1Node\t100\t90\t1.000\t0.900 to 1.100\t1.250\t0.500 to 1.500\t3",
		},
		"even": {
			result: result{workload: w, rates: map[string][]float64{stock: {100, 200}, shipped: {90, 220}},
				cpu: map[string][]float64{stock: {1, 1}, shipped: {2, 1}}},
			want: "Case/1Node\t150\t155\t1.000\t0.900 to 1.100\t1.500\t1.000 to 2.000\t2",
		},
		"short": {
			result: result{workload: w, rates: map[string][]float64{stock: {100, 0}, shipped: {90, 80}}},
			want:   "Case/1Node\tpasses, too short to be measured",
		},
		"failed": {
			result: result{workload: w, failed: true, rates: map[string][]float64{stock: {100}, shipped: {0}}},
			want:   "Case/1Node\tfailed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.result.line()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// schedulerPerf returns the folder of scheduler_perf.
func schedulerPerf(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), schedulerPerfFolder)
}
