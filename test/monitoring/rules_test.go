package monitoring

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	root    = "../.."
	overlay = root + "/manifests/overlays/monitoring"
	// extenderOverlay is for a cluster that runs spot-extender instead of the scheduler.
	extenderOverlay = root + "/manifests/overlays/monitoring-extender"
	// anySchedulerOverlay is for a cluster without a scheduler of this project.
	anySchedulerOverlay = root + "/manifests/overlays/monitoring-any-scheduler"
)

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	live.Must(t, err)
	return string(data)
}

// group and rule have the format of Prometheus rule files and of PrometheusRules.
type group struct {
	Name string `json:"name"`
	// Interval is the evaluation interval; empty means Prometheus' own.
	Interval string `json:"interval,omitempty"`
	Rules    []rule `json:"rules"`
}

// rule is an alert, or records a series.
type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// alertsOf returns the groups of the PrometheusRules in an overlay, and its alerts by name.
func alertsOf(t *testing.T, overlay string) (groups []group, alerts map[string]rule) {
	t.Helper()
	alerts = map[string]rule{}
	for _, document := range built(t, overlay) {
		if !strings.Contains(document, "\nkind: PrometheusRule\n") {
			continue
		}
		var shipped struct {
			APIVersion, Kind string
			Metadata         map[string]any
			Spec             struct {
				Groups []group `json:"groups"`
			}
		}
		live.Must(t, yaml.UnmarshalStrict([]byte(document), &shipped))
		groups = append(groups, shipped.Spec.Groups...)
	}
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				continue
			}
			if _, ok := alerts[rule.Alert]; ok || rule.Alert == "" {
				t.Errorf("group %s has a rule with the name %q, want a unique name: %s", group.Name, rule.Alert, rule.Expr)
			}
			alerts[rule.Alert] = rule
		}
	}
	return groups, alerts
}

// built returns the documents of an overlay.
func built(t *testing.T, overlay string) []string {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, ".local/bin/kubectl"), "kustomize", overlay).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", overlay, err)
	}
	return strings.Split(string(out), "\n---\n")
}

// writeRules writes the groups as a Prometheus rule file.
func writeRules(t *testing.T, file string, groups []group) {
	t.Helper()
	data, err := yaml.Marshal(map[string]any{"groups": groups})
	live.Must(t, err)
	live.Must(t, os.WriteFile(file, data, 0o600))
}

// testRules runs a file of test cases with promtool.
func testRules(t *testing.T, file string) {
	t.Helper()
	promtool := exec.Command(filepath.Join(root, ".local/bin/promtool"), "test", "rules", file)
	if out, err := promtool.CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v (hack/prometheus.sh installs promtool)\n%s", err, out)
	}
}

// selector matches the selectors of an expression that select metrics of this project, of
// kube-scheduler or of their libraries.
var selector = regexp.MustCompile(`\b((?:spot_aware_scheduler|scheduler|leader_election|process|rest_client)_\w+)(?:\{[^}]*\})?`)

// TestAlerts runs the cases of each overlay. Each alert must fire in one case. No alert may be
// silent in the healthy case only because a metric is missing.
func TestAlerts(t *testing.T) {
	_, elsewhere := alertsOf(t, overlay)
	t.Run("scheduler", func(t *testing.T) { checkAlerts(t, overlay, "alerts.yaml", nil) })
	t.Run("extender", func(t *testing.T) { checkAlerts(t, extenderOverlay, "extender.yaml", elsewhere) })
	t.Run("any scheduler", func(t *testing.T) { checkAlerts(t, anySchedulerOverlay, "any-scheduler.yaml", elsewhere) })
}

// checkAlerts checks the alerts of an overlay with a file of cases. For alerts that fire elsewhere,
// it checks only that they are silent in the healthy case.
func checkAlerts(t *testing.T, overlay, of string, elsewhere map[string]rule) {
	groups, alerts := alertsOf(t, overlay)
	cases := read(t, of)
	dir := t.TempDir()
	writeRules(t, filepath.Join(dir, "rules.yaml"), groups)
	live.Must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(cases), 0o600))
	testRules(t, filepath.Join(dir, "alerts.yaml"))

	var file struct {
		Tests []struct {
			Name        string `json:"name"`
			InputSeries []struct {
				Series string `json:"series"`
			} `json:"input_series"`
			AlertTests []struct {
				Name   string `json:"alertname"`
				Expect []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	live.Must(t, yaml.Unmarshal([]byte(cases), &file))
	fires, silent, healthy := map[string]bool{}, map[string]bool{}, ""
	for _, test := range file.Tests {
		for _, alert := range test.AlertTests {
			if _, ok := alerts[alert.Name]; !ok {
				t.Errorf("case %q tests %s, which is not an alert", test.Name, alert.Name)
			}
			fires[alert.Name] = fires[alert.Name] || len(alert.Expect) > 0
			silent[alert.Name] = silent[alert.Name] || len(alert.Expect) == 0
		}
		if test.Name == "healthy" {
			for _, series := range test.InputSeries {
				healthy += series.Series + "\n"
			}
		}
	}
	if len(alerts) < 10 {
		t.Errorf("found %d alerts, expected at least 10: the overlay was not parsed completely", len(alerts))
	}
	for name, alert := range alerts {
		if _, ok := elsewhere[name]; !ok && (!fires[name] || !silent[name]) {
			t.Errorf("%s: fires in a case: %t, is silent in a case: %t; want both", name, fires[name], silent[name])
		}
		for _, match := range selector.FindAllStringSubmatch(alert.Expr, -1) {
			if !strings.Contains(healthy, match[1]+"{") {
				t.Errorf("%s is silent in the healthy case because %s is missing", name, match[1])
			}
		}
	}
}

// TestCostRules runs the cases of the recorded costs. Some cases have the metric of OpenCost.
func TestCostRules(t *testing.T) {
	dir := t.TempDir()
	groups, _ := alertsOf(t, overlay)
	writeRules(t, filepath.Join(dir, "rules.yaml"), groups)
	writeRules(t, filepath.Join(dir, "unknown.yaml"), []group{{Name: "unknown", Rules: []rule{
		{Record: "spot_aware_scheduler_node_hourly_on_demand_cost_usd", Expr: "unknown * NaN"},
	}}})
	live.Must(t, os.WriteFile(filepath.Join(dir, "costs.yaml"), []byte(read(t, "costs.yaml")), 0o600))
	testRules(t, filepath.Join(dir, "costs.yaml"))
}

// TestAlertsAreExplained checks that each alert has a severity, a summary, and a section with
// instructions.
func TestAlertsAreExplained(t *testing.T) {
	_, alerts := alertsOf(t, overlay)
	_, more := alertsOf(t, extenderOverlay)
	maps.Copy(alerts, more)
	page, metrics := read(t, root+"/docs/monitoring.md"), read(t, root+"/docs/metrics.md")
	const runbook = "https://github.com/spot-aware-scheduler/spot-aware-scheduler/blob/main/docs/monitoring.md#"
	for name, alert := range alerts {
		if !slices.Contains([]string{"critical", "warning"}, alert.Labels["severity"]) {
			t.Errorf("%s: severity %q, want critical or warning", name, alert.Labels["severity"])
		}
		if alert.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", name)
		}
		if got, want := alert.Annotations["runbook_url"], runbook+strings.ToLower(name); got != want {
			t.Errorf("%s: runbook_url %q, want %q", name, got, want)
		}
		if !strings.Contains(page, "\n### "+name+"\n") {
			t.Errorf("docs/monitoring.md has no section %s", name)
		}
		for _, match := range selector.FindAllStringSubmatch(alert.Expr, -1) {
			metric := strings.TrimSuffix(match[1], "_count")
			if strings.HasPrefix(metric, "spot_aware_scheduler_") && !strings.Contains(metrics, "`"+metric+"`") {
				t.Errorf("%s: docs/metrics.md has no %s", name, metric)
			}
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(page, -1) {
		if _, ok := alerts[match[1]]; !ok {
			t.Errorf("docs/monitoring.md explains %s, which is not an alert", match[1])
		}
	}
}
