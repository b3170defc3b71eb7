package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/monitoring"
)

// Titles of the drawn panels: numbers at the top, and curves over time below.
var (
	numbers = []string{"Replicas missing on on-demand", "Pods waiting for on-demand", "Share on spot beyond the floors", "Time to empty a node"}
	curves  = []string{"Bound pods", "Nodes", "Missing and waiting", "Moves by reason"}
)

// query runs the queries of the drawn panels for the time of the story.
func (s *story) query(ctx context.Context, d monitoring.Dashboard) (picture, error) {
	p := picture{
		title: d.Title, length: s.ended.Sub(s.began), marks: s.marks,
		note: fmt.Sprintf("Drawn from Prometheus' results of the dashboard's queries during these events (calmPeriod: %s, not 10m):", calm),
	}
	for _, title := range numbers {
		c, err := s.chart(ctx, d, title)
		if err != nil {
			return p, err
		}
		p.numbers = append(p.numbers, c)
	}
	for _, title := range curves {
		c, err := s.chart(ctx, d, title)
		if err != nil {
			return p, err
		}
		p.curves = append(p.curves, c)
	}
	return p, nil
}

// chart queries one panel. Each of its series has a value for every step; NaN if Prometheus has
// none.
func (s *story) chart(ctx context.Context, d monitoring.Dashboard, title string) (chart, error) {
	i := slices.IndexFunc(d.Panels, func(p monitoring.Panel) bool { return p.Title == title && p.Type != "row" })
	if i < 0 {
		return chart{}, fmt.Errorf("the dashboard has no panel %q", title)
	}
	panel := d.Panels[i]
	c := chart{title: title, unit: panel.FieldConfig.Defaults.Unit, stacked: panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"}
	// The values that Grafana would substitute.
	variables := map[string]string{
		"profile": ".+", "__rate_interval": model.Duration(4 * every).String(),
		"__range": model.Duration(s.ended.Sub(s.began).Round(time.Second)).String(),
	}
	steps := int(s.ended.Sub(s.began)/every) + 1
	for _, target := range panel.Targets {
		value, _, err := s.prometheus.QueryRange(ctx, target.Query(variables), promv1.Range{Start: s.began, End: s.ended, Step: every})
		if err != nil {
			return chart{}, fmt.Errorf("%s: %w", title, err)
		}
		for _, result := range value.(model.Matrix) {
			labels := map[string]string{}
			for name, value := range result.Metric {
				labels[string(name)] = string(value)
			}
			line := series{legend: target.Legend(labels), values: slices.Repeat([]float64{math.NaN()}, steps)}
			for _, sample := range result.Values {
				step := int(math.Round(float64(sample.Timestamp.Time().Sub(s.began)) / float64(every)))
				line.values[min(max(step, 0), steps-1)] = float64(sample.Value)
			}
			c.series = append(c.series, line)
		}
	}
	if len(c.series) == 0 {
		return chart{}, fmt.Errorf("%s: Prometheus returned no series", title)
	}
	return c, nil
}
