package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

// workload names one of upstream's workloads.
type workload struct {
	folder   string // of scheduler_perf: the one with its templates
	testCase string
	size     string // the name of the workload in its test case
}

func (w workload) String() string { return w.testCase + "/" + w.size }

// compared is what is measured unless sizes are asked for. Of upstream's sizes these are the smallest that are large enough to show what a
// node or a pod more costs, with the feature gates that this minor version has by default; but scheduler_perf turns opportunistic batching
// off, and it makes a scheduler of its own: there are no narrow searches in it (cmd/scheduler/search.go), the plugins work on its sample.
var compared = []workload{
	{"misc", "SchedulingBasic", "5000Nodes"},
	{"topology_spreading", "TopologySpreading", "5000Nodes"},
	{"affinity", "SchedulingPodAffinity", "500Nodes"},
	{"misc", "PreemptionAsync", "5000Nodes_QueueingHintsEnabled"},
	{"misc", "SchedulingWithMixedChurn", "5000Nodes"},
	{"misc", "Unschedulable", "5kNodes/100Init/10kPods"},
	{"misc", "SchedulingDaemonset", "15000Nodes_QueueingHintsEnabled"},
}

// choose returns those of compared whose test case matches. With a size it returns all workloads of these test cases that match it
// instead. A nil expression matches all; perf is the folder of scheduler_perf.
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

// writeTestCase writes a file of test cases with one workload alone, to be scheduled with the configuration in another file, or with
// kube-scheduler's defaults if that is "".
func writeTestCase(file, perf string, w workload, schedulerConfig string) error {
	upstream, err := readTestCase(perf, w)
	if err != nil {
		return err
	}
	upstream["schedulerConfigPath"] = schedulerConfig
	// Pods per second are collected in any case. The rest, left at its default, takes longer than many a workload.
	upstream["metricsCollectorConfig"] = map[string]any{"metrics": map[string]any{}}
	for _, each := range upstream["workloads"].([]any) {
		if nameOf(each) == w.size {
			// A threshold is what upstream's machines must reach.
			delete(each.(map[string]any), "threshold")
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

// readTestCase returns the test case of a workload as upstream has it.
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
