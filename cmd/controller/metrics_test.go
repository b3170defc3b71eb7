package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The metrics of both registries are served. No metric is in both, which would fail every scrape,
// and all series of the alerts exist from the start: an increase needs a first sample.
func TestMetrics(t *testing.T) {
	registerMetrics()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	served := map[string][]string{} // the labels of each series, as text
	for _, family := range families {
		names = append(names, family.GetName())
		for _, metric := range family.Metric {
			text := ""
			for _, label := range metric.Label {
				text += label.GetName() + `="` + label.GetValue() + `",`
			}
			served[family.GetName()] = append(served[family.GetName()], text)
		}
	}
	all := strings.Join(names, " ") + " "
	for _, want := range []string{
		"spot_aware_scheduler_controller_plan_duration_seconds ", "spot_aware_scheduler_controller_writes_total ",
		"kubernetes_build_info ", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no metric %s in %s", want, all)
		}
	}
	file, err := os.ReadFile("../../manifests/overlays/monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(file), "- name: spot-controller\n") // and the group after it
	selectors := regexp.MustCompile(`(spot_aware_scheduler_\w+)(?:\{(.*?)\})?`).FindAllStringSubmatch(rules, -1)
	if len(selectors) < 5 {
		t.Errorf("found %d selectors, want at least 5: this test uses a wrong pattern", len(selectors))
	}
	for _, selector := range selectors {
		if selector[1] == "spot_aware_scheduler_reclaim_nodes" {
			continue // a gauge with the signals that nodes have had
		}
		has := func(series string) bool {
			for _, label := range strings.FieldsFunc(selector[2], func(r rune) bool { return r == ',' }) {
				if !strings.Contains(series, label+",") {
					return false
				}
			}
			return true
		}
		if !slices.ContainsFunc(served[strings.TrimSuffix(selector[1], "_count")], has) {
			t.Errorf("no series of %s, which an alert uses, is served from the start", selector[0])
		}
	}
}
