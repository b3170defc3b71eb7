package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// handled returns a second act that kept all guarantees: two pods left the pool, one of a
// singleton, and one pod returned to spot.
func handled() reclaimed {
	begin := time.Unix(1000, 0)
	part := func(onSpot int, usd float64) map[string]result {
		placed := map[string]result{}
		for _, w := range workloads {
			r := result{OnSpot: w.replicas - w.floor, OnDemand: w.floor}
			if w.name == "search" {
				r = result{OnSpot: onSpot, OnDemand: w.replicas - onSpot, HourUSD: usd}
			}
			placed[w.name] = r
		}
		return placed
	}
	outages := map[string]outage{}
	for _, w := range workloads {
		outages[w.name] = outage{Lowest: max(w.floor, w.minAvailable)}
	}
	return reclaimed{
		Pool: largestPool(scarceNodes()), Shortened: []string{"calmPeriod: 10m"}, FellBack: []string{"admin"},
		Before: part(9, 1), During: part(6, 2), After: part(9, 1.5), AllOnDemandUSD: 3,
		Notice: begin, Left: []exit{
			{Workload: "kafka", Pod: "kafka-4", Method: migration.Evict, At: begin.Add(1500 * time.Millisecond)},
			{Workload: "admin", Pod: "admin-1", Method: migration.Surge, At: begin.Add(20 * time.Second)},
		},
		Returned: []exit{{Workload: "search", Method: migration.Surge}}, Back: 12 * time.Second, Outages: outages,
		OnNotice: []eventSummary{{spot.ReasonInterruption, 4, "Node spot-1", "it is reclaimed"}},
		OnReturn: []eventSummary{{spot.ReasonReleased, 1, "Pod search-1", "by requests"}},
	}
}

// mishandled returns a second act that broke all guarantees.
func mishandled() reclaimed {
	r := handled()
	r.Stranded, r.Misplaced, r.Outages = map[string]int{}, map[string]int{}, map[string]outage{}
	for _, w := range workloads {
		r.Stranded[w.name], r.Misplaced[w.name] = w.replicas, w.replicas
	}
	r.FellBack, r.After = []string{"admin", "billing", "mailer"}, nil
	r.Back = returnTimeout
	return r
}

func TestReclaimReportWidth(t *testing.T) {
	for name, r := range map[string]reclaimed{"handled": handled(), "mishandled": mishandled()} {
		var out strings.Builder
		r.write(&out, false)
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: escape sequences although color is off", name)
		}
	}
}

func TestReclaimReportContent(t *testing.T) {
	tests := map[string]struct {
		report reclaimed
		want   []string
	}{
		"handled": {handled(), []string{
			"2 minutes' notice for the 4 nodes of m5.xlarge in us-east-1a",
			"kafka            StatefulSet    2 of 5       3 │ 1 evict                   1.5 s │      3",
			"admin            Deployment     1 of 1       - │ 1 surge                  20.0 s │      1",
			"login            Deployment     1 of 2       - │ -                             - │      1",
			"replicas of services on spot                  │ 30 of 48      │ 27 of 48      │ 30 of 48\n",
			"their cost per hour (all on-demand: $3.00)    │ $1.00         │ $2.00         │ $1.50\n",
			"All 2 pods left the pool: 1 surge, 1 evict. The last left 20.0 s after the notice, 100.0 s\n",
			"admin had fallen back to spot, because on-demand was cordoned until 4s after the notice.",
			"12.0 s after the pool was recreated, on-demand runs exactly the floors. Back to spot: 1 surge.",
			"SpotInterruption (4), Node spot-1: it is reclaimed",
			"ReleasedToMove (1), Pod search-1: by requests",
			"(shipped: calmPeriod: 10m)",
		}},
		"mishandled": {mishandled(), []string{
			"admin            Deployment     1 of 1       - │ 1 surge, 1 never              - │      0",
			"login            Deployment     1 of 2       - │ 2 never                       - │      0",
			"their replicas without a node, at no cost     │ 0             │ 0             │ 48\n",
			"54 pods were still on the nodes at the deadline.",
			"until 4s\n   after the notice; at least one had no ready replica at some moment.",
			"90.0 s after the pool was recreated, on-demand runs 54 replicas too many or too few.",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			test.report.write(&out, false)
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("missing: %s\n%s", want, out.String())
				}
			}
		})
	}
}

func TestReclaimVerdict(t *testing.T) {
	tests := map[string]struct {
		change func(r *reclaimed)
		want   string // part of the error; empty: none
	}{
		"all kept":           {func(*reclaimed) {}, ""},
		"a gap":              {func(r *reclaimed) { r.Outages["admin"] = outage{} }, "admin fell below its floor (0 of 1)"},
		"below a floor":      {func(r *reclaimed) { r.Outages["storefront"] = outage{Lowest: 2} }, "storefront fell below its floor (2 of 3)"},
		"below a budget":     {func(r *reclaimed) { r.Outages["kafka"] = outage{Lowest: 2} }, "kafka fell below its PodDisruptionBudget (2 of 3)"},
		"never measured":     {func(r *reclaimed) { delete(r.Outages, "redis") }, "redis fell below its floor (0 of 1)"},
		"an outage of a Job": {func(r *reclaimed) { r.Outages["nightly-report"] = outage{} }, ""},
		"on a node at the deadline": {
			func(r *reclaimed) { r.Stranded = map[string]int{"nightly-report": 1, "kafka": 2} },
			"pods were deleted with their nodes: kafka (2), nightly-report (1)",
		},
		"not back on spot": {
			func(r *reclaimed) { r.Misplaced, r.Back = map[string]int{"search": 3}, returnTimeout },
			"on-demand had too many or too few replicas 90.0 s after the pool was recreated: search (3)",
		},
		"all at once": {
			func(r *reclaimed) { r.Outages["admin"], r.Stranded = outage{}, map[string]int{"login": 2} },
			"admin fell below its floor (0 of 1); pods were deleted with their nodes: login (2)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := handled()
			test.change(&r)
			err := r.verdict()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
