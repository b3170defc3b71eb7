package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

// workload identifies an upstream workload.
type workload struct {
	folder   string // of scheduler_perf, with its templates
	testCase string
	size     string // the name of the workload in its test case
}

func (w workload) String() string { return w.testCase + "/" + w.size }

// compared lists the workloads that are measured unless -size is set. Of the upstream sizes, these
// are the smallest that are large enough to show the cost of another node or pod. They use the
// default feature gates of this minor version, but scheduler_perf disables opportunistic batching.
// It also creates its own scheduler, without the limits of cmd/scheduler for bindings and events.
var compared = []workload{
	{"misc", "SchedulingBasic", "5000Nodes"},
	{"topology_spreading", "TopologySpreading", "5000Nodes"},
	{"topology_spreading", "PreferredTopologySpreading", "5000Nodes"},
	{"topology_spreading", "DefaultTopologySpreading", "5000Nodes_10000Pods"},
	{"affinity", "SchedulingNodeAffinity", "5000Nodes"},
	{"affinity", "SchedulingPodAffinity", "500Nodes"},
	{"misc", "PreemptionAsync", "5000Nodes_QueueingHintsEnabled"},
	{"misc", "SchedulingWithMixedChurn", "5000Nodes"},
	{"misc", "Unschedulable", "5kNodes/100Init/10kPods_QueueingHintsEnabled"},
	{"misc", "SchedulingDaemonset", "15000Nodes_QueueingHintsEnabled"},
}

// choose returns the workloads in compared whose test case matches. With a size, it instead returns
// all workloads that match the size, for the same test cases. A nil expression matches all. perf is
// the folder of scheduler_perf.
func choose(perf string, testCase, size *regexp.Regexp) ([]workload, error) {
	var chosen []workload
	for _, w := range compared {
		if testCase != nil && !testCase.MatchString(w.testCase) {
			continue
		}
		if size == nil {
			chosen = append(chosen, w)
			continue
		}
		upstream, err := readTestCase(perf, w)
		if err != nil {
			return nil, err
		}
		for _, each := range upstream["workloads"].([]any) {
			if w.size = nameOf(each); size.MatchString(w.size) {
				chosen = append(chosen, w)
			}
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no workload matches -workloads and -size: expected regular expressions, such as Basic and ^500Nodes$")
	}
	return chosen, nil
}

// writeTestCase writes a file of test cases with only one workload. The workload is scheduled with
// the configuration in another file, or with kube-scheduler's defaults if that is "".
func writeTestCase(file, perf string, w workload, schedulerConfig string) error {
	upstream, err := readTestCase(perf, w)
	if err != nil {
		return err
	}
	upstream["schedulerConfigPath"] = schedulerConfig
	// Pods per second are always collected. Collecting the other default metrics takes longer than
	// many workloads.
	upstream["metricsCollectorConfig"] = map[string]any{"metrics": map[string]any{}}
	for _, each := range upstream["workloads"].([]any) {
		if nameOf(each) == w.size {
			// A threshold applies to upstream's machines.
			delete(each.(map[string]any), "threshold")
			// true is the default of this feature gate. If it is set, scheduler_perf also checks a
			// metric that may be out of date, which fails some runs (kubernetes/kubernetes#140751).
			if gates, _ := each.(map[string]any)["featureGates"].(map[string]any); gates["SchedulerQueueingHints"] == true {
				delete(gates, "SchedulerQueueingHints")
			}
			upstream["workloads"] = []any{each}
			data, err := yaml.Marshal([]any{upstream})
			if err != nil {
				return err
			}
			return os.WriteFile(file, data, 0o600)
		}
	}
	return fmt.Errorf("scheduler_perf has no workload %s", w)
}

// readTestCase returns the upstream test case of a workload.
func readTestCase(perf string, w workload) (map[string]any, error) {
	file := filepath.Join(perf, w.folder, "performance-config.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var testCases []map[string]any
	if err := yaml.Unmarshal(data, &testCases); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, testCase := range testCases {
		if nameOf(testCase) == w.testCase {
			return testCase, nil
		}
	}
	return nil, fmt.Errorf("%s: no test case %s", file, w.testCase)
}

func nameOf(value any) string {
	name, _ := value.(map[string]any)["name"].(string)
	return name
}
