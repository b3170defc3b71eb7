package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/monitoring"
)

const root = "../../.."

// textOf returns the texts of an SVG in their order.
func textOf(t *testing.T, svg []byte) (texts []string) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				texts = append(texts, string(token))
			}
		}
	}
}

// TestDraw checks that the SVG contains values, units, legends and events. A series that is always
// 0 must not appear.
func TestDraw(t *testing.T) {
	p := picture{
		title: "Board", length: time.Minute, marks: []mark{{10 * time.Second, "a node is reclaimed"}},
		numbers: []chart{
			{title: "Share", unit: "percentunit", series: []series{{"share", []float64{0, 0.5, math.NaN()}}}},
			{title: "None", unit: "s", series: []series{{"90 %", []float64{math.NaN()}}}},
		},
		curves: []chart{
			{title: "Pods", unit: "cpm", stacked: true, series: []series{{"bound", []float64{1, 2, 3}}, {"never", []float64{0, 0, math.NaN()}}}},
			{title: "All well", unit: "short", series: []series{{"missing", []float64{0, 0, 0}}}},
		},
	}
	svg, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	texts := textOf(t, svg)
	for _, want := range []string{
		"Board", "0:10", "a node is reclaimed", "Share", "50 %", "None", "no value", "Pods", "bound", "2/min", "0:30", "All well", "missing",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing in %q", want, texts)
		}
	}
	if slices.Contains(texts, "never") {
		t.Errorf("the legend names a series that is always 0: %q", texts)
	}
}

func TestFormatValue(t *testing.T) {
	got := map[string]string{}
	for unit, v := range map[string]float64{"short": 12, "percentunit": 1, "s": 7.256, "cpm": 2.5} {
		got[unit] = formatValue(v, unit)
	}
	if diff := cmp.Diff(map[string]string{"short": "12", "percentunit": "100 %", "s": "7.26 s", "cpm": "2.5/min"}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestTicks(t *testing.T) {
	for most, want := range map[float64][]string{
		4:   {"0", "1", "2", "3", "4"},
		27:  {"0", "10", "20"},
		130: {"0", "50", "100"},
		0.9: {"0", "0.2", "0.4", "0.6", "0.8"},
	} {
		var got []string
		for _, tick := range ticks(most, "short") {
			got = append(got, tick.Label)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("up to %v (-want +got):\n%s", most, diff)
		}
	}
}

// TestPictureMatchesDashboard checks that the dashboard has the panels of the picture in the
// documentation.
func TestPictureMatchesDashboard(t *testing.T) {
	d, err := monitoring.ReadDashboard(root)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(root, "docs/dashboard.svg"))
	if err != nil {
		t.Fatal(err)
	}
	texts := textOf(t, svg)
	for _, title := range slices.Concat(numbers, curves) {
		if !slices.ContainsFunc(d.Panels, func(p monitoring.Panel) bool { return p.Title == title }) || !slices.Contains(texts, title) {
			t.Errorf("%q is not both in the dashboard and in docs/dashboard.svg: make picture", title)
		}
	}
	if len(svg) > 200<<10 {
		t.Errorf("docs/dashboard.svg has %d bytes, want at most 200 KiB", len(svg))
	}
}
