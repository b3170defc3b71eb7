package replay

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sampleReport returns a report with a complete arm that is broken and a partial arm.
func sampleReport(t *testing.T) *Report {
	t.Helper()
	in, _ := world()
	in.Source = "<script>"
	in.Pools = []PoolNote{{Pool: "a", Kind: "availability", License: "MIT", Source: "somewhere", Note: "a note"}}
	r := NewReport(newPlan(t, nil), in)
	r.Scale, r.CalmScale, r.Command, r.Machine = 10, 300, "spot-lab replay", "a machine"
	r.ScaledSettings = commonSettings(newPlan(t, nil), Scales{Busy: 10, Calm: 300})
	h := newHistory(t, "1", "50%", "spot-a-1", "spot-a-2", "od")
	h.PodGone(sec(600), "2", false)
	h.PodGone(sec(3600), "0", true)
	h.PodGone(sec(3600), "1", true)
	h.pod(3700, "3", "od", true)
	full := ArmResult{Name: "controller", Title: "with the controller", Result: h.result(7200)}
	full.Broken = full.broken()
	half := newHistory(t, "1", "50%", "od", "od", "od")
	partial := ArmResult{Name: "on-demand", Title: "all on-demand", Partial: true, Problem: "interrupted", Result: half.result(1800)}
	r.Arms = []ArmResult{full, partial}
	return r
}

// TestPinnedNames checks the names of report.json that other programs read.
func TestPinnedNames(t *testing.T) {
	folder := t.TempDir()
	r := sampleReport(t)
	must(t, r.Write(folder))
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	must(t, err)
	var decoded map[string]any
	must(t, json.Unmarshal(data, &decoded))
	arm := decoded["arms"].([]any)[0].(map[string]any)
	for _, name := range []string{"podHoursCost", "nodeHoursCost", "outages", "outageSeconds", "belowFloorSeconds", "belowBudgetSeconds", "spotShare", "evictions"} {
		if _, ok := arm[name].(float64); !ok {
			t.Errorf("arms[0].%s is %v, want a number", name, arm[name])
		}
	}
	if arm["name"] != "controller" || arm["outages"] != 1.0 || arm["outageSeconds"] != 100.0 {
		t.Errorf("arms[0]: name %v, %v outages of %v s", arm["name"], arm["outages"], arm["outageSeconds"])
	}
	if cost, _ := decoded["bound"].(map[string]any)["podHoursCost"].(float64); cost != r.Bound.PodHoursCost || cost == 0 {
		t.Errorf("bound.podHoursCost is %v, want %v", cost, r.Bound.PodHoursCost)
	}
	if decoded["partial"] != true {
		t.Error("the report is not marked as partial")
	}
	again, err := ReadReport(folder)
	if err != nil || again.Arms[0].Outages != 1 {
		t.Errorf("reading the report: %v", err)
	}
}

func TestReadReportRejects(t *testing.T) {
	for content, want := range map[string]string{
		`[]`:           "cannot unmarshal array",
		`{"arms": []}`: "it has no dataset",
		`{"dataset": "d", "arms": [{"name": "a"}]}`: `unknown arm "a"`,
	} {
		path := filepath.Join(t.TempDir(), "report.json")
		must(t, os.WriteFile(path, []byte(content), 0o644))
		if _, err := ReadReport(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want the path and %q", content, err, want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	text := sampleReport(t).Markdown("")
	for _, want := range []string{
		"| controller (BROKEN) |", "| on-demand (partial) |", "| bound |", "**PARTIAL", "BROKEN: arm controller: 1 outages of 100 s",
		"Arm on-demand covers 30m0s of 2h0m0s", "| `notice` | 2m0s | 12s |", "Pool a (availability, MIT)",
		"| svc-x |", "controller: with a notice of 2m0s, pods that did not leave their nodes in time: 2. Deleted at the deadline: 0. Lost with their nodes: 2.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// TestPlots checks that report.md shows each plot, and that each plot is a file that needs no other
// file.
func TestPlots(t *testing.T) {
	folder := t.TempDir()
	must(t, sampleReport(t).Write(folder))
	page, err := os.ReadFile(filepath.Join(folder, "report.md"))
	must(t, err)
	plots, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil || len(plots) != 5 {
		t.Errorf("plots %q, %v; want 5: a plane and two timelines per arm", plots, err)
	}
	for _, plot := range plots {
		image, err := os.ReadFile(plot)
		if err != nil || !strings.Contains(string(image), "<svg ") || !strings.HasSuffix(strings.TrimSpace(string(image)), "</svg>") ||
			strings.Contains(string(image), "href=") || !strings.Contains(string(image), "prefers-color-scheme: dark") ||
			strings.Contains(string(image), "fill:#FFFFFF") {
			t.Errorf("%s is no complete plot: %v", plot, err)
		}
		if !strings.Contains(string(page), "("+filepath.Base(plot)+")") {
			t.Errorf("report.md does not show %s", plot)
		}
	}
}

// TestPlaneRange checks that one arm does not press the others onto the axis of costs, and that the
// caption names it.
func TestPlaneRange(t *testing.T) {
	tests := map[string]struct {
		notReady   []float64
		wantTop    float64
		wantBeyond string
	}{
		"one arm far off":           {[]float64{0.1, 6, 0.2}, 0.3, "preferred"},
		"two arms far off":          {[]float64{6, 5, 0.2}, 7.8, ""},
		"no arm far off":            {[]float64{0.1, 0.3, 0.2}, 0.39, ""},
		"all others are ready":      {[]float64{0, 6, 0}, 7.8, ""},
		"all are ready":             {[]float64{0, 0, 0}, 0.01, ""},
		"differences of a few pods": {[]float64{0, 0.012, 0.002}, 0.0156, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Report{}
			for i, share := range test.notReady {
				r.Arms = append(r.Arms, ArmResult{Name: Arms[i].Name, Result: Result{Figures: Figures{ReadyShare: 1 - share/100}, NodeHoursCost: 1}})
			}
			top, beyond := r.planeRange()
			got := ""
			if beyond != nil {
				got = beyond.Name
			}
			if math.Abs(top-test.wantTop) > 1e-9 || got != test.wantBeyond {
				t.Errorf("axis up to %g, %q beyond it; want %g, %q", top, got, test.wantTop, test.wantBeyond)
			}
			planes := r.plotFiles(nil)[0]
			if len(planes) != 2 {
				t.Fatalf("%d planes, want one by pods and one by nodes", len(planes))
			}
			for _, file := range planes {
				if named := strings.Contains(file.caption, "Beyond the axis: preferred"); named != (test.wantBeyond != "") {
					t.Errorf("caption %q, want the arm beyond the axis: %q", file.caption, test.wantBeyond)
				}
				p, err := file.draw()
				must(t, err)
				if p.Y.Max > top*1.01 {
					t.Errorf("%s: the axis ends at %g, want %g", file.name, p.Y.Max, top)
				}
			}
		})
	}
}

func TestEmptyReport(t *testing.T) {
	in, _ := world()
	if err := NewReport(newPlan(t, nil), in).Write(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestCompare(t *testing.T) {
	before, after := sampleReport(t), sampleReport(t)
	if text := Compare(before, after); !strings.Contains(text, "The parameters are equal") {
		t.Errorf("equal reports:\n%s", text)
	}
	after.Seed = 2
	after.Arms[0].PodHoursCost = before.Arms[0].PodHoursCost * 1.1
	after.Arms[0].Outages = 3
	after.Arms = append(after.Arms[:1], ArmResult{Name: "split"})
	text := Compare(before, after)
	for _, want := range []string{
		"| seed | 1 | 2 |", "| controller | outages | 1 | 3 | +200.0 % |", "+10.0 % |", "| on-demand | | | not in the second report",
		"| split | | not in the first report", "First report: PARTIAL",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestChange(t *testing.T) {
	for want, values := range map[string][2]float64{"0": {0, 0}, "+2": {0, 2}, "-50.0 %": {4, 2}} {
		if got := change(values[0], values[1]); got != want {
			t.Errorf("change from %v: %q, want %q", values, got, want)
		}
	}
}

func TestBootstrap(t *testing.T) {
	if low, high := Bootstrap([]pair{{1, 2}, {2, 4}, {3, 6}}, 1); low != 0.5 || high != 0.5 {
		t.Errorf("equal ratios: %v to %v", low, high)
	}
	blocks := []pair{{1, 1}, {3, 1}, {1, 1}, {3, 1}, {1, 1}, {3, 1}, {1, 1}, {3, 1}}
	low, high := Bootstrap(blocks, 1)
	if !(low >= 1 && low < 1.9 && high > 2.1 && high <= 3) {
		t.Errorf("%v to %v, want a range around 2", low, high)
	}
	if again, _ := Bootstrap(blocks, 1); again != low {
		t.Error("the same seed differs")
	}
	if low, high := Bootstrap(nil, 1); low != 1 || high != 1 {
		t.Errorf("without blocks: %v to %v", low, high)
	}
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if err := PrepareFolder(filepath.Join(file, "out")); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("error %v", err)
	}
	folder := filepath.Join(t.TempDir(), "a", "b")
	if err := PrepareFolder(folder); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("the new folder contains %v, %v", entries, err)
	}
}

func TestCalmPeriods(t *testing.T) {
	if c := newCalmPeriods(nil, time.Minute); c != nil {
		t.Errorf("no periods: got %+v, want nil", c)
	}
	want := CalmPeriods{Count: 3, Short: 1, ShortestSeconds: 50}
	if c := newCalmPeriods([]time.Duration{time.Hour, 50 * time.Second, 55 * time.Second}, time.Minute); *c != want {
		t.Errorf("got %+v, want %+v", *c, want)
	}
	r := sampleReport(t)
	r.Arms[0].CalmPeriods = &want
	if text := r.Markdown(""); !strings.Contains(text, "controller: 1 of 3 calm periods were shorter in the trace than configured") {
		t.Errorf("the report does not name short calm periods:\n%s", text)
	}
}
