// Package monitoring tests the alerts with promtool. It also runs every query of the dashboard
// against a real Prometheus that scrapes the built programs in a lab. hack/prometheus.sh installs
// both programs.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Dashboard contains the fields of Grafana's format that this package uses.
type Dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Panels        []Panel
	Templating    struct{ List []Variable }
}

// Panel is a row of the dashboard, or one of its panels.
type Panel struct {
	ID          int
	Type, Title string
	Datasource  Source
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct {
		Defaults struct {
			Unit   string
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
	Targets []Target
}

// Target is a query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Datasource   Source
	Expr         string
	LegendFormat string
}

// Source is a data source.
type Source struct{ Type, UID string }

// Variable is a variable that a query can reference as $Name.
type Variable struct {
	Name, Type string
	Definition string
	Datasource Source
}

// ReadDashboard returns the dashboard in a checkout.
func ReadDashboard(root string) (Dashboard, error) {
	var d Dashboard
	file := filepath.Join(root, "manifests/overlays/monitoring/dashboard.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

var (
	// variableIn matches a Grafana variable in a query. labelIn matches a label in a legend format.
	variableIn = regexp.MustCompile(`\$\{?(\w+)\}?`)
	labelIn    = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// Query returns the query with Grafana's variables replaced by these values. An unknown variable
// becomes empty.
func (t Target) Query(values map[string]string) string {
	return variableIn.ReplaceAllStringFunc(t.Expr, func(in string) string { return values[variableIn.FindStringSubmatch(in)[1]] })
}

// Legend returns the legend of a series with these labels.
func (t Target) Legend(labels map[string]string) string {
	return labelIn.ReplaceAllStringFunc(t.LegendFormat, func(in string) string { return labels[labelIn.FindStringSubmatch(in)[1]] })
}
