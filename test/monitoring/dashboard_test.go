package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func dashboardOf(t *testing.T) Dashboard {
	t.Helper()
	d, err := ReadDashboard(root)
	live.Must(t, err)
	return d
}

// TestDashboardPanelsAreValid detects invalid panels, because Grafana draws nothing for a panel
// that it does not understand. It also detects overlapping panels.
func TestDashboardPanelsAreValid(t *testing.T) {
	d := dashboardOf(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 { // since version 36 a datasource is an object
		t.Errorf("uid %q, title %q, schemaVersion %d; want both set, and at least 36", d.UID, d.Title, d.SchemaVersion)
	}
	templated := Source{"prometheus", "${datasource}"}
	known := []string{"__rate_interval", "__range"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		if v.Type == "query" && v.Datasource != templated {
			t.Errorf("variable %s: datasource %v, want %v", v.Name, v.Datasource, templated)
		}
	}
	if !slices.Contains(known, "datasource") {
		t.Errorf("variables %q, want one with the name datasource", known)
	}
	ids, at, drawn := map[int]string{}, map[[2]int]string{}, 0
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("panel %q has the id %d of %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v, want it within 24 columns", p.Title, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := at[cell]; ok {
					t.Fatalf("panel %q overlaps %q", p.Title, other)
				}
				at[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		drawn++
		complete := p.Title != "" && p.FieldConfig.Defaults.Unit != "" && p.Datasource == templated && len(p.Targets) > 0
		if !complete || !slices.Contains([]string{"stat", "timeseries"}, p.Type) {
			t.Errorf("panel %d (%q): type %q, unit %q, datasource %v, %d queries; want all set, and the datasource %v",
				p.ID, p.Title, p.Type, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets), templated)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Datasource != templated {
				t.Errorf("panel %q: query %q: datasource %v; want a unique name, and %v", p.Title, q.RefID, q.Datasource, templated)
			}
			refs[q.RefID] = true
			for _, match := range variableIn.FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(known, match[1]) {
					t.Errorf("panel %q: the dashboard has no variable %s", p.Title, match[1])
				}
			}
		}
	}
	if drawn < 20 {
		t.Errorf("found %d panels, expected at least 20: the dashboard was not parsed completely", drawn)
	}
}

// TestDashboardShowsEveryMetric checks that a panel or a recording rule uses each documented
// metric.
func TestDashboardShowsEveryMetric(t *testing.T) {
	shown := ""
	for _, p := range dashboardOf(t).Panels {
		for _, q := range p.Targets {
			shown += q.Expr + "\n"
		}
	}
	groups, _ := alertsOf(t, overlay)
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				shown += rule.Expr + "\n"
			}
		}
	}
	documented := regexp.MustCompile("(?m)^\\| `(spot_aware_scheduler_\\w+)` \\| (\\w+)").FindAllStringSubmatch(read(t, root+"/docs/metrics.md"), -1)
	if len(documented) < 15 {
		t.Errorf("found %d metrics, expected at least 15: the expression matches too little", len(documented))
	}
	for _, match := range documented {
		if !strings.Contains(shown, match[1]) {
			t.Errorf("no panel shows %s", match[1])
		}
	}
}

// TestDashboardCountsOnce evaluates panels with promtool for two profiles on two replicas. Every
// replica reports its view of the whole cluster. Every profile reports all nodes, but only its own
// pods. The live test has only one profile and one replica.
func TestDashboardCountsOnce(t *testing.T) {
	for title, test := range map[string]struct {
		metric, labels string // besides profile and instance
		shows          string // labels
		want           float64
	}{
		"Replicas missing on on-demand":   {"floor_deficit_replicas", ``, `{}`, 10},
		"Workloads below their floor":     {"floors_unmet_workloads", ``, `{}`, 10},
		"Pods waiting for on-demand":      {"waiting_for_on_demand_pods", ``, `{}`, 10},
		"Longest waits":                   {"longest_wait_for_on_demand_seconds", ``, `{}`, 5},
		"Share on spot beyond the floors": {"bound_pods", `capacity_type="spot",part="beyond-floor",`, `{}`, 1},
		"Bound pods":                      {"bound_pods", `capacity_type="spot",part="floor",`, `{capacity_type="spot",part="floor"}`, 10},
		"Cost per hour by capacity type":  {"hourly_cost_usd", `capacity_type="spot",`, `{capacity_type="spot"}`, 5},
		"Nodes":                           {"nodes", `capacity_type="spot",source="label",`, `{capacity_type="spot",source="label"}`, 5},
	} {
		t.Run(title, func(t *testing.T) {
			panels := dashboardOf(t).Panels
			i := slices.IndexFunc(panels, func(p Panel) bool { return p.Title == title })
			if i < 0 {
				t.Fatal("the dashboard has no such panel")
			}
			var series []any
			for _, profile := range []string{"one", "other"} {
				for _, replica := range []string{"s1", "s2"} {
					of := fmt.Sprintf(`spot_aware_scheduler_%s{%sprofile=%q,instance=%q}`, test.metric, test.labels, profile, replica)
					series = append(series, map[string]any{"series": of, "values": "5x10"})
				}
			}
			cases, err := yaml.Marshal(map[string]any{"tests": []any{map[string]any{
				"interval": "1m", "input_series": series,
				"promql_expr_test": []any{map[string]any{
					"expr": panels[i].Targets[0].Query(map[string]string{"profile": ".+"}), "eval_time": "5m",
					"exp_samples": []any{map[string]any{"labels": test.shows, "value": test.want}},
				}},
			}}})
			live.Must(t, err)
			file := filepath.Join(t.TempDir(), "cases.yaml")
			live.Must(t, os.WriteFile(file, cases, 0o600))
			testRules(t, file)
		})
	}
}
