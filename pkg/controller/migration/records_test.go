package migration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// initialCounts are the metrics before any move.
var initialCounts map[string]float64

func init() {
	execution.RegisterMetrics()
	initialCounts, _ = gather() // a later call would return the same error
}

// All series exist before their first count: see RegisterMetrics.
func TestMetricsFromTheStart(t *testing.T) {
	want := []string{"evictions_blocked_total disruption-budget", "evictions_blocked_total several-disruption-budgets"}
	for _, method := range []string{"surge", "evict", "delete"} {
		for _, reason := range []string{"interruption", "advisory", "heal", "make-room", "return-to-spot", "unknown"} {
			for _, outcome := range []string{"moved", "restored", "abandoned", "dry-run"} {
				want = append(want, method+" "+reason+" "+outcome)
			}
		}
	}
	for _, replacement := range []string{"not-created", "not-scheduled", "not-ready", "ready"} {
		want = append(want, "pods_lost_with_node_total "+replacement, "deletions_total deadline true "+replacement,
			"deletions_total deadline false "+replacement, "deletions_total unreachable true "+replacement)
	}
	for _, name := range want {
		if _, ok := initialCounts[name]; !ok {
			t.Errorf("no count %s", name)
		}
	}
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// counted returns all counts: migrations by their label values, the rest by name.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	counts, err := gather()
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func gather() (map[string]float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	counts := map[string]float64{}
	for _, family := range families {
		suffix, ours := strings.CutPrefix(family.GetName(), "spot_aware_scheduler_")
		if !ours {
			continue
		}
		for _, metric := range family.Metric {
			labels := map[string]string{}
			for _, label := range metric.Label {
				labels[label.GetName()] = label.GetValue()
			}
			name := suffix
			switch {
			case labels["method"] != "":
				name = labels["method"] + " " + labels["reason"] + " " + labels["outcome"]
			case labels["replacement"] != "":
				name = strings.Join(strings.Fields(name+" "+labels["cause"]+" "+labels["breaks_budget"]+" "+labels["replacement"]), " ")
			case labels["cause"] != "":
				name += " " + labels["cause"]
			case labels["reason"] != "":
				name += " " + labels["reason"]
			}
			counts[name] = metric.Counter.GetValue() + metric.Gauge.GetValue() + metric.Histogram.GetSampleSum()
		}
	}
	return counts, err
}

// since returns the differences of the counts to before.
func since(t *testing.T, before map[string]float64) map[string]float64 {
	t.Helper()
	counts := counted(t)
	for name, n := range before {
		if counts[name] -= n; counts[name] == 0 {
			delete(counts, name)
		}
	}
	for name, n := range counts {
		if n == 0 {
			delete(counts, name)
		}
	}
	return counts
}

// A migration is counted when the pod is gone, not when its eviction is accepted.
func TestCounts(t *testing.T) {
	before := counted(t)
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("web", w.replicaSets["web-1"], "reclaimed")
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.pod("tool", nil, "reclaimed")
	w.deployment("gone", 1)
	w.released(w.pod("leftover", w.replicaSets["gone-1"], "reclaimed"), 0)
	delete(w.replicaSets, "gone-1")
	w.deployment("full", 1)
	w.released(w.pod("full", w.replicaSets["full-1"], "remaining"), 2*time.Minute)
	w.sync()
	b := newBench(w, false)
	reclaimed := []string{"web", "db-0", "tool"}
	b.round(2*time.Minute, reclaimed...)
	w.sync()
	b.round(2*time.Minute, reclaimed...)
	clustertest.Equal(t, "before a pod is gone", map[string]float64{"surge heal restored": 1}, since(t, before))
	b.pass(40 * time.Second) // pods may take long to terminate
	b.round(2*time.Minute, reclaimed...)
	w.endPods()
	w.control()
	w.startPods()
	w.sync()
	b.round(2*time.Minute, reclaimed...)
	w.endPods()
	b.pass(50 * time.Second)
	w.sync()
	b.round(2*time.Minute, reclaimed...)
	w.endPods()
	w.sync()
	b.round(2*time.Minute, reclaimed...)
	b.round(2*time.Minute, reclaimed...)
	want := map[string]float64{
		"surge heal restored": 1, "surge interruption moved": 1, "evict interruption moved": 1, "delete interruption moved": 1,
		"surge heal abandoned": 1, "evacuation_duration_seconds": 90, "deletions_total deadline false not-created": 1,
	}
	clustertest.Equal(t, "counts", want, since(t, before))
}

// A node that vanishes with running pods does not count as evacuated. A node whose pods were gone
// or terminating does.
func TestNodeVanishes(t *testing.T) {
	for name, test := range map[string]struct {
		emptied bool
		// ending: all pods are terminating.
		ending bool
		// second: the notice was withdrawn and then repeated.
		second bool
		want   map[string]float64
		events []string
	}{
		"with pods":                          {want: map[string]float64{"pods_lost_with_node_total not-created": 1}, events: []string{"PodsLostWithNode Node"}},
		"with pods that are ending":          {ending: true, want: map[string]float64{"evacuation_duration_seconds": 20}},
		"without pods":                       {emptied: true, want: map[string]float64{"evacuation_duration_seconds": 20}},
		"without pods, on its second notice": {emptied: true, second: true, want: map[string]float64{"evacuation_duration_seconds": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			before := counted(t)
			w := newWorld(t)
			one := w.pod("one", nil, "reclaimed")
			w.terminate(w.pod("two", nil, "reclaimed"))
			if test.ending {
				w.terminate(one)
			}
			w.pod("elsewhere", nil, "remaining")
			w.pod("agent", nil, "reclaimed").OwnerReferences = ofDaemonSet
			w.sync()
			b := newBench(w, false)
			b.round(0)
			b.pass(15 * time.Second)
			w.calm = test.second
			b.round(0)
			w.calm = false
			b.round(0)
			b.pass(5 * time.Second)
			delete(w.nodes, "reclaimed")
			if test.emptied {
				delete(w.pods, "one")
				delete(w.pods, "two")
			}
			w.sync()
			b.round(0)
			b.round(0)
			clustertest.Equal(t, "counts", test.want, since(t, before))
			b.want(t, nil, test.events)
		})
	}
}

// A moved pod that does not terminate is reported once, also by a controller that started after the
// move. Pods that another client deleted, or that have time left, are not reported.
func TestOverdue(t *testing.T) {
	for name, test := range map[string]struct {
		moved, released bool
		passes          time.Duration
		want            float64
	}{
		"evicted":                   {moved: true, passes: 61 * time.Second, want: 1},
		"evicted, in time":          {moved: true, passes: 60 * time.Second},
		"released":                  {released: true, passes: 61 * time.Second, want: 1},
		"deleted by another client": {passes: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			before := counted(t)
			w := newWorld(t)
			pod := w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			if test.released {
				w.deployment("web", 1)
				pod = w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), 0)
			}
			w.sync()
			b := newBench(w, false)
			if test.moved {
				b.round(0, "db-0")
			} else {
				w.terminate(pod)
			}
			w.sync()
			b.round(0)
			b.reported = nil
			b.pass(test.passes)
			b.round(0)
			b.round(0)
			var want []string
			if test.want > 0 {
				want = []string{"TerminationOverdue Pod"}
			}
			clustertest.Equal(t, "events", want, b.reported)
			if got := since(t, before)["moved_pods_overdue_total"]; got != test.want {
				t.Errorf("%g pods are overdue, want %g", got, test.want)
			}
		})
	}
}

// Events are recorded on the workload of a pod, of any kind, and on the pod. A pod without a
// controller has no other object for an event.
func TestObjectsOfEvents(t *testing.T) {
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		want   []string
	}{
		"no controller":      {nil, []string{"DeletedAtDeadline Pod"}},
		"another controller": {[]metav1.OwnerReference{{APIVersion: "x.io/v1", Kind: "Game", Name: "g", UID: "g", Controller: new(true)}}, []string{"DeletedAtDeadline Pod", "DeletedAtDeadline Game"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			w.pod("web", w.replicaSets["web-1"], "reclaimed").OwnerReferences = test.owners
			w.sync()
			b := newBench(w, false)
			b.round(time.Second, "web")
			clustertest.Equal(t, "events", test.want, b.reported)
		})
	}
}

// At the default level a refusal is logged once per kind and pod. A repeated refusal is not logged.
func TestLogOfAMove(t *testing.T) {
	w := newWorld(t)
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.sync()
	refuses := true
	w.fail = func(verb, _, _ string) (error, bool) {
		if verb == "evict" && refuses {
			return tooManyRequests(), true
		}
		return nil, false
	}
	b := newBench(w, false)
	var out bytes.Buffer
	ctx := klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2), textlogger.Output(&out))))
	for range 4 {
		s := b.snapshot()
		these := moves(s, migration.Interruption, start.Add(10*time.Minute), "db-0")
		b.executor.Do(ctx, migration.Plan(s, &room{left: 10}, these, settings, b.executor.Observe(s)))
		b.executor.Wait()
		b.pass(10 * time.Second)
		refuses = w.now.Sub(start) < 30*time.Second
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(line, "] ")
		line, _, _ = strings.Cut(line, " outcome=")
		got = append(got, strings.TrimSpace(line))
	}
	// The fields that depend on the world's node and workload have default values.
	about := ` pod="shop/db-0" podUID="db-0-4" action="evict" cause="reclaim" reason="interruption" method="evict" node="reclaimed" capacityType="on-demand" workload="shop/db"` +
		` desired=1 floor=0 ready=1 deadline="` + start.Add(10*time.Minute).String() + `" replacement="not created"`
	want := []string{`"Action failed, will retry"` + about, `"Evicted pod"` + about + ` message="by requests, node remaining has room for a replacement; no surge: it does not belong to a ReplicaSet"`}
	clustertest.Equal(t, "logged", want, got)
}
