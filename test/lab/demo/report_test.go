package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// kept returns an act in which every workload kept its floor on on-demand nodes at a cost of 10
// cents.
func kept() map[string]result {
	act := map[string]result{}
	for _, w := range workloads {
		act[w.name] = result{OnSpot: w.replicas - w.floor, OnDemand: w.floor, HourUSD: 0.1, Outage: outage{Lowest: w.floor}}
	}
	return act
}

// lost returns an act in which every workload ran on spot only and had no ready replica for a long
// time.
func lost() map[string]result {
	act := map[string]result{}
	for _, w := range workloads {
		act[w.name] = result{
			OnSpot: w.replicas, HourUSD: 0.05, Outage: outage{Duration: 123 * time.Second, Ongoing: true},
		}
	}
	return act
}

func TestReportWidth(t *testing.T) {
	var out strings.Builder
	report{nodes: lab.DefaultNodes(), stock: lost(), ours: lost(), allOnDemandUSD: 1.8}.write(&out, false)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape sequences although color is off")
	}
}

func TestReportContent(t *testing.T) {
	var out strings.Builder
	report{nodes: lab.DefaultNodes(), stock: lost(), ours: kept(), allOnDemandUSD: 2.6}.write(&out, false)
	for _, want := range []string{
		"│   10/10       0 >123.0 s │    7/10       3       -", // storefront
		"services without any ready replica       │ 12 of 12                 │ 0 of 12",
		"cost per hour (all on-demand: $2.60)     │ $0.65 (75 % less)        │ $1.30 (50 % less)",
		"Services without any ready replica under spot-aware-scheduler: none",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %s\n%s", want, out.String())
		}
	}
}

func TestVerdict(t *testing.T) {
	tests := map[string]struct {
		change func(act map[string]result)
		want   string // part of the error; empty: none
	}{
		"all kept":                 {func(map[string]result) {}, ""},
		"an outage of a singleton": {func(act map[string]result) { act["admin"] = result{} }, "admin (0 of 1)"},
		"below the floor, no outage": {
			func(act map[string]result) { act["storefront"] = result{Outage: outage{Lowest: 2}} }, "storefront (2 of 3)",
		},
		"never measured":     {func(act map[string]result) { delete(act, "redis") }, "redis (0 of 1)"},
		"an outage of a Job": {func(act map[string]result) { act["nightly-report"] = result{} }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ours := kept()
			test.change(ours)
			err := report{stock: lost(), ours: ours}.verdict()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"fits":           {"one two", []string{"one two"}},
		"breaks":         {"one two three", []string{"one two", "three"}},
		"a longer word":  {"a incomprehensible b", []string{"a", "incomprehensible", "b"}},
		"nothing at all": {"", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, wrap(test.text, 8)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
