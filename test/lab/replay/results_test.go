package replay

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWriteResults(t *testing.T) {
	folder := t.TempDir()
	for name, change := range map[string]func(*Report){
		"short":        func(r *Report) { r.NoticeSeconds = 30 },
		"long/seed-1":  func(*Report) {},
		"long/seed-2":  func(r *Report) { r.Seed = 2; r.Arms[0].Outages = 4 },
		"long/floor":   func(r *Report) { r.Floor = "30%" },
		"long/another": func(r *Report) { r.Dataset = "another" },
		"long/others":  func(r *Report) { r.Dataset, r.Arms[0].Name, r.Arms = "another", "split", r.Arms[:1] },
	} {
		r := sampleReport(t)
		r.NoticeSeconds, r.StartupSeconds, r.Created = 120, 5, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
		change(r)
		folder := filepath.Join(folder, name)
		must(t, PrepareFolder(folder))
		must(t, r.Write(folder))
	}
	page := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) error {
		t.Helper()
		must(t, os.WriteFile(page, []byte(text), 0o644))
		return WriteResults(folder, page)
	}
	if err := write("# Results\n"); err == nil || !strings.Contains(err.Error(), "page.md: expected the lines") {
		t.Errorf("a page without a generated part: %v", err)
	}
	must(t, write("# Results\n"+resultsBegin+"old\n"+resultsEnd+"the end\n"))
	text, err := os.ReadFile(page)
	must(t, err)
	at := 0
	for _, want := range []string{
		"# Results\n" + resultsBegin, "### Notice 2m0s, start-up 5s, floor 1", "| trace | seed | nodes removed | arm |", "| `another` | 1 | 4 | split |", "| `another` | 1 | 4 | controller |", "| `another` | 1 | 4 | bound | 0.0 |", "| `d` | 1 | 4 | controller |", "| `d` | 2 | 4 | controller |", "| `d` | 2 | 4 | bound |",
		"seed 2: BROKEN: arm controller", "### Notice 30s, start-up 5s, floor 1", "### Notice 2m0s, start-up 5s, floor 30%", "![Ready and desired replicas, controller](another-controller-ready.svg)", "### Windows", "2026-01-02", resultsEnd + "the end\n",
	} {
		next := strings.Index(string(text[at:]), want)
		if next < 0 {
			t.Fatalf("%q is not on the page, or not in this order:\n%s", want, text)
		}
		at += next
	}
	if strings.Contains(string(text), "old") {
		t.Error("the page contains its old content")
	}
	plot, err := os.ReadFile(filepath.Join(filepath.Dir(page), "another-controller-ready.svg"))
	if err != nil || !strings.Contains(string(plot), `xmlns="http://www.w3.org/2000/svg"`) {
		t.Errorf("the plot is %.60s: %v", plot, err)
	}
}

func TestWriteResultsWithoutReports(t *testing.T) {
	if err := WriteResults(t.TempDir(), "page.md"); err == nil || !strings.Contains(err.Error(), "no report.json") {
		t.Errorf("got %v, want an error about missing reports", err)
	}
}

func TestMergeArmsRejects(t *testing.T) {
	reports := func(change func(*Report)) []*Report {
		first, second := sampleReport(t), sampleReport(t)
		second.Arms[0].Name, second.Arms = "split", second.Arms[:1]
		change(second)
		return []*Report{first, second}
	}
	for want, change := range map[string]func(*Report){
		`have the arm "controller"`: func(r *Report) { r.Arms[0].Name = "controller" },
		`different values of notice, "2m0s" and "1m0s"`: func(r *Report) {
			r.ScaledSettings = slices.Clone(r.ScaledSettings)
			r.ScaledSettings[0].Trace = "1m0s"
		},
	} {
		if _, err := mergeArms(reports(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	merged, err := mergeArms(reports(func(r *Report) { r.ScaledSettings = append(r.ScaledSettings, ScaledSetting{Name: "another"}) }))
	if err != nil || len(merged) != 1 || merged[0].Arm("split") == nil || merged[0].ScaledSettings[len(merged[0].ScaledSettings)-1].Name != "another" {
		t.Errorf("merged %d reports: %v", len(merged), err)
	}
}
