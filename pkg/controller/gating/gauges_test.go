package gating

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// served returns the series of the pods that keep their scheduler whose value is not 0.
func served(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var name []string
			kept := false
			for _, label := range m.GetLabel() {
				kept = kept || label.GetName() == "profile" && label.GetValue() == "keep-scheduler"
				if label.GetName() != "profile" {
					name = append(name, label.GetValue())
				}
			}
			if value := m.GetGauge().GetValue() + m.GetCounter().GetValue(); kept && value != 0 {
				all[strings.Join(append([]string{strings.TrimPrefix(family.GetName(), "spot_aware_scheduler_")}, name...), " ")] = value
			}
		}
	}
	return all
}

// keptNamespace is the namespace of the pods, which keep their scheduler.
func keptNamespace() *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{spot.OptInLabel: spot.KeepScheduler}}}
}

// bind binds a pod as another scheduler does.
func (w *world) bind(name, node string) {
	w.t.Helper()
	pods := w.client.CoreV1().Pods("shop")
	pod, err := pods.Get(w.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		pod.Spec.NodeName = node
		pod.Status.Conditions = nil
		_, err = pods.Update(w.t.Context(), pod, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The controller serves the metrics and records the events of the pods that keep their scheduler,
// and no others: the scheduler serves the metrics of its own pods.
func TestMetricsOfKeptPods(t *testing.T) {
	node := func(name, capacity string) *v1.Node { return clustertest.NewNode(name, capacity, "m/a") }
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never},
		append(clustertest.NewDeployment("web", 6), keptNamespace(), node("od", "on-demand"), node("spot", "spot"))...)
	w.RegisterGauges(providers.Signals())
	w.settings.Paused = clustertest.Paused(func(safety.Cause) bool { return true }) // the floor has more pods than it needs
	before := served(t)                                                             // counters of other tests

	var pods []*v1.Pod
	for i := range 5 {
		pod := gated("ReplicaSet", "web-r", fmt.Sprint("kept-", i))
		pod.Spec.SchedulerName = v1.DefaultSchedulerName
		pod.CreationTimestamp.Time = pod.CreationTimestamp.Add(time.Duration(i) * time.Millisecond)
		pods = append(pods, pod)
	}
	pods[0].Annotations = map[string]string{spot.MaxPerPoolAnnotation: "no number", spot.FallbackAfterAnnotation: "soon"}
	ours := gated("ReplicaSet", "ours-r", "ours")
	ours.Annotations = map[string]string{spot.MaxPerPoolAnnotation: "no number"}
	for _, object := range clustertest.NewDeployment("ours", 1) {
		if err := w.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	w.create(append(pods, ours)...)
	var floor, others []string
	for name, assigned := range w.assigned() {
		switch {
		case name == "ours":
		case assigned == "on-demand":
			floor = append(floor, name)
		default:
			others = append(others, name)
		}
	}
	if len(floor) != 2 || len(others) != 3 {
		t.Fatalf("%v require on-demand and %v do not, want 2 and 3", floor, others)
	}
	w.bind("ours", "od")
	w.bind(floor[0], "od")
	w.bind(floor[0], "od") // another change of a bound pod
	starting := gated("ReplicaSet", "web-r", "starting")
	starting.Spec.SchedulingGates, starting.Spec.SchedulerName = nil, v1.DefaultSchedulerName
	starting.Annotations = map[string]string{spot.AssignedAnnotation: "on-demand: no scheduler has tried it"}
	w.create(starting)
	waiting, err := w.client.CoreV1().Pods("shop").Get(t.Context(), floor[1], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waiting.Generation = 2
	waiting.Annotations[spot.WaitingSinceAnnotation] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	waiting.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
	if _, err := w.client.CoreV1().Pods("shop").Update(t.Context(), waiting, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{others[0]: "spot", others[1]: "spot", others[2]: "od"} {
		w.bind(name, node)
	}

	want := map[string]float64{
		"placements_total on-demand floor": 1, "placements_total on-demand overflow": 1, "placements_total spot budget": 2,
		"invalid_annotations_total": 2, "nodes on-demand label": 1, "nodes spot label": 1,
		"waiting_for_on_demand_pods": 1, "bound_pods on-demand floor": 2, "bound_pods spot beyond-floor": 2,
	}
	var got map[string]float64
	// profilemetrics repeats gauges for a hundred times the duration of a read.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got = served(t)
		for name, value := range before {
			if strings.Contains(name, "_total") {
				if got[name] -= value; got[name] == 0 {
					delete(got, name)
				}
			}
		}
		if wait := got["longest_wait_for_on_demand_seconds"]; wait > 3500 && wait < 3700 {
			delete(got, "longest_wait_for_on_demand_seconds")
		}
		if maps.Equal(got, want) {
			break
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	var invalid []string
	for len(w.events.Events) > 0 {
		if event := <-w.events.Events; strings.Contains(event, spot.ReasonInvalidPolicy) {
			invalid = append(invalid, event)
		}
	}
	if len(invalid) != 1 || !strings.Contains(invalid[0], "no number") {
		t.Errorf("events %q, want one with both annotations of kept-0", invalid)
	}
}

// A placement that is an exception has an event, and its reason.
func TestExceptionsOfKeptPods(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never},
		append(clustertest.NewDeployment("web", 9), keptNamespace(), clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("spot", "spot", "m/a"))...)
	w.RegisterGauges(providers.Signals())
	placements := func() (sum float64) {
		for name, value := range served(t) {
			if strings.HasPrefix(name, "placements_total") {
				sum += value
			}
		}
		return sum
	}
	total := placements()
	for name, test := range map[string]struct {
		node                string
		granted, assigned   string
		want                decision.Outcome
		wantEvent, selector string
	}{
		"fallback":         {"spot", spot.GrantedFallback, "any: granted", decision.ByFallback, spot.ReasonFellBack, ""},
		"fallback-not":     {"od", spot.GrantedFallback, "any: granted", decision.Overflow, "", ""},
		"relief":           {"spot", spot.GrantedRelief, "any: granted", decision.ByRolloutRelief, spot.ReasonRolloutRelief, ""},
		"exemption":        {"spot", spot.GrantedExemption, "any: no node", decision.ByExemption, spot.ReasonExempt, ""},
		"schedule-anyway":  {"spot", "", "none: " + whyAnyway + ": x", decision.ByScheduleAnyway, spot.ReasonScheduledAnyway, ""},
		"anyway-on-demand": {"od", "", "none: " + whyAnyway + ": x", decision.OnFloor, "", ""},
		"only-on-demand":   {"od", "", "none: its own", decision.OnFloor, "", "on-demand"},
		"restored":         {"spot", spot.GrantedFallback, "on-demand: floor", decision.ByFallback, spot.ReasonFellBack, ""},
		"mislabeled":       {"spot", "", "on-demand: floor", "", "", ""},
		"unknown-text":     {"spot", "\x00", "\x00", decision.InBudget, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := gated("ReplicaSet", "web-r", name)
			pod.Spec.SchedulingGates, pod.Spec.SchedulerName = nil, v1.DefaultSchedulerName
			pod.Annotations = map[string]string{spot.GrantedAnnotation: test.granted + " " + string(pod.UID), spot.AssignedAnnotation: test.assigned}
			if test.selector != "" {
				pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: test.selector}
			}
			w.create(pod)
			before := served(t)
			capacity := map[string]string{"od": "on-demand", "spot": "spot"}[test.node]
			w.bind(name, test.node)
			series := "placements_total " + capacity + " " + string(test.want)
			if test.want != "" {
				w.until(series, func() bool { return served(t)[series] == before[series]+1 })
			}
			w.until("the binding is in the cache", func() bool {
				obj, exists, _ := w.pods.GetByKey("shop/" + name)
				return exists && obj.(*v1.Pod).Spec.NodeName != ""
			})
			if test.wantEvent != "" {
				w.until("an event", func() bool { return len(w.events.Events) > 0 })
			}
			var reasons []string
			for len(w.events.Events) > 0 {
				reasons = append(reasons, strings.Fields(<-w.events.Events)[1])
			}
			if want := strings.Fields(test.wantEvent); !slices.Equal(reasons, want) && len(reasons)+len(want) > 0 {
				t.Errorf("events %v, want %v", reasons, want)
			}
		})
	}
	last := gated("ReplicaSet", "web-r", "last")
	last.Spec.SchedulingGates, last.Spec.SchedulerName = nil, v1.DefaultSchedulerName
	w.create(last)
	w.bind("last", "spot")
	w.until("10 placements, all but the mislabeled", func() bool { return placements() == total+10 })
}

// A replica of the floor that another scheduler placed on a node which turned out to be spot is no
// longer part of the floor. While the node may still receive its label, it is.
func TestFloorOnALateSpotNode(t *testing.T) {
	for name, want := range map[string]string{"spot": "on-demand", "on-demand": "any", "": "any"} {
		t.Run(name, func(t *testing.T) {
			late := clustertest.NewNode("late", name, "m/a")
			late.CreationTimestamp = metav1.Now()
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never},
				append(clustertest.NewDeployment("web", 3), keptNamespace(), clustertest.NewNode("od", "on-demand", "m/a"), late)...)
			w.settings.Policy.LabelGrace = time.Minute
			first, second := gated("ReplicaSet", "web-r", "first"), gated("ReplicaSet", "web-r", "second")
			first.Spec.SchedulerName, second.Spec.SchedulerName = v1.DefaultSchedulerName, v1.DefaultSchedulerName
			w.create(first)
			if got := w.assigned(); got["first"] != "on-demand" {
				t.Fatalf("assigned %v, want on-demand", got)
			}
			w.bind("first", "late")
			w.until("the binding is in the cache", func() bool {
				obj, exists, _ := w.pods.GetByKey("shop/first")
				return exists && obj.(*v1.Pod).Spec.NodeName != ""
			})
			w.create(second)
			if got := w.assigned(); got["second"] != want {
				t.Errorf("assigned %v, want %s to the second", got, want)
			}
		})
	}
}
