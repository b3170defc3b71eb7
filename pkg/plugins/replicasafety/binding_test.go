package replicasafety

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Every deliberate exception is an event on the pod. A regular placement is not. Metrics count both
// by reason.
func TestPlacements(t *testing.T) {
	relieved := podOf("p", by("ReplicaSet", "web-2"))
	exempt := web("p")
	exempt.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
	daemon := podOf("p", by("DaemonSet", "ds"))
	overBudget := " (node spot; spot budget of shop/web-1: 1 of 1 used before this pod)"
	cases := map[string]struct {
		annotations map[string]string // of the Deployment "web", of 2 replicas
		existing    map[string]string // ReplicaSets by the node of one of their pods
		pod         *v1.Pod
		waited      time.Duration
		node        string
		want        *placement.Placement
		wantEvent   string
	}{
		"floor":         {pod: web("p"), node: "on-demand", want: &placement.Placement{Capacity: decision.OnDemand, Outcome: decision.OnFloor}},
		"overflow":      {existing: map[string]string{"on-demand": "web-1"}, pod: web("p"), node: "on-demand", want: &placement.Placement{Capacity: decision.OnDemand, Outcome: decision.Overflow}},
		"within budget": {existing: map[string]string{"on-demand": "web-1"}, pod: web("p"), node: "spot", want: &placement.Placement{Capacity: decision.Spot, Outcome: decision.InBudget}},
		"exempt": {existing: map[string]string{"spot": "web-1"}, pod: exempt, node: "spot", want: &placement.Placement{Capacity: decision.Spot, Outcome: decision.ByExemption},
			wantEvent: "Normal ExemptFromFloor placed on spot despite its floor: the pod's own constraints admit only spot" + overBudget},
		"fallback": {annotations: map[string]string{spot.FallbackAfterAnnotation: "5s"}, existing: map[string]string{"spot": "web-1"}, pod: web("p"), waited: 5 * time.Second, node: "spot",
			want:      &placement.Placement{Capacity: decision.Spot, Outcome: decision.ByFallback},
			wantEvent: "Warning FellBackToSpot placed on spot over its budget or cap: no other node could run it, or none had room within fallbackAfter" + overBudget},
		"fallback, on-demand has room": {annotations: map[string]string{spot.FallbackAfterAnnotation: "5s"}, existing: map[string]string{"spot": "web-1"}, pod: web("p"), waited: 5 * time.Second,
			node: "on-demand", want: &placement.Placement{Capacity: decision.OnDemand, Outcome: decision.OnFloor}},
		"relief": {annotations: map[string]string{spot.MinOnDemandAnnotation: "100%"}, existing: map[string]string{"on-demand": "web-1"}, pod: relieved, waited: time.Minute, node: "spot",
			want: &placement.Placement{Capacity: decision.Spot, Outcome: decision.ByRolloutRelief},
			wantEvent: "Warning RolloutRelief placed on spot to let the rollout finish: older replicas of its workload occupy the on-demand capacity" +
				" (node spot; spot budget of shop/web-2: 0 of 0 used before this pod)"},
		"ScheduleAnyway": {annotations: map[string]string{spot.WhenUnsatisfiableAnnotation: "ScheduleAnyway"}, existing: map[string]string{"spot": "web-1"}, pod: web("p"), node: "spot",
			want:      &placement.Placement{Capacity: decision.Spot, Outcome: decision.ByScheduleAnyway},
			wantEvent: "Warning SpotBudgetExceeded placed on spot over its budget or cap: whenUnsatisfiable is ScheduleAnyway" + overBudget},
		"DaemonSet": {pod: daemon, node: "spot"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, withAnnotations(test.annotations, deployment("web", 2, "1", "2"))...)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			for node, replicaSet := range test.existing {
				w.addPods(node, podOf("sibling", by("ReplicaSet", replicaSet)))
			}
			if test.waited > 0 {
				w.plugin.waiting.AddUnschedulable(test.pod, placement.Wait{})
				w.clock.Step(test.waited)
			}
			before := placementsTotal(t)
			o := w.try(test.pod)
			w.bind(o, test.pod, test.node)
			var got *placement.Placement
			if s := placement.Read(o.state); s != nil {
				got = s.Placement
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Placed (-want +got):\n%s", diff)
			}
			wantTotal := maps.Clone(before)
			if test.want != nil {
				wantTotal[test.want.Capacity.String()+" "+string(test.want.Outcome)]++
			}
			if diff := cmp.Diff(wantTotal, placementsTotal(t)); diff != "" {
				t.Errorf("placements_total (-want +got):\n%s", diff)
			}
			var wantEvents []string
			if test.wantEvent != "" {
				wantEvents = []string{test.wantEvent}
			}
			if diff := cmp.Diff(wantEvents, w.recorded()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// placementsTotal reads the metric placements_total, by capacity type and reason.
func placementsTotal(t *testing.T) map[string]float64 {
	t.Helper()
	total := map[string]float64{}
	for _, capacity := range []string{"spot", "on-demand"} {
		labels := map[string]string{"profile": profile, "capacity_type": capacity}
		byReason, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "spot_aware_scheduler_placements_total", labels, "reason")
		if err != nil {
			continue // no placement yet
		}
		for reason, n := range byReason {
			total[capacity+" "+reason] = n
		}
	}
	return total
}

// Pods with equal signatures may share one decision. Pods without a signature never do.
func TestSignPod(t *testing.T) {
	critical := podOf("p")
	critical.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
	w := newWorld(t, nil, deployment("web", 2, "1")...)
	waiting := podOf("waiting")
	w.plugin.waiting.AddUnschedulable(waiting, placement.Wait{})
	sign := func(pod *v1.Pod) string {
		fragments, status := w.plugin.SignPod(t.Context(), pod)
		if !status.IsSuccess() {
			if !status.IsRejected() {
				t.Errorf("%s: %v, want a refusal", pod.Name, status)
			}
			return ""
		}
		if len(fragments) != 1 || fragments[0].Key != "spot-aware-scheduler.io/policy" {
			t.Fatalf("%s: fragments %v, want one under the policy's key", pod.Name, fragments)
		}
		return fragments[0].Value.(string)
	}
	fixed := podOf("p")
	fixed.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "on-demand"}
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second}
	plain := settings.String() + " onlySpot=false onlyOnDemand=false assigned= granted=0"
	cases := map[string]struct {
		pod  *v1.Pod
		want string // "" for none
	}{
		"no controller":              {podOf("p"), plain},
		"no controller, other pod":   {podOf("q"), plain},
		"with an annotation":         {annotate(podOf("p"), spot.MinOnDemandAnnotation, "0"), strings.Replace(plain, "minOnDemand=1", "minOnDemand=0", 1)},
		"requires spot":              {critical, strings.Replace(plain, "onlySpot=false", "onlySpot=true", 1)},
		"requires on-demand":         {fixed, strings.Replace(plain, "onlyOnDemand=false", "onlyOnDemand=true", 1)},
		"assigned any":               {annotate(podOf("p"), spot.AssignedAnnotation, "any: x"), strings.Replace(plain, "assigned=", "assigned=any", 1)},
		"assigned any, other reason": {annotate(podOf("p"), spot.AssignedAnnotation, "any: y"), strings.Replace(plain, "assigned=", "assigned=any", 1)},
		"assigned invalid value":     {annotate(podOf("p"), spot.AssignedAnnotation, "x"), plain},
		"granted a fallback":         {annotate(podOf("p"), spot.GrantedAnnotation, spot.GrantedFallback+" "+string(podOf("p").UID)), strings.Replace(plain, "granted=0", "granted=2", 1)},
		"granted relief":             {annotate(podOf("p"), spot.GrantedAnnotation, spot.GrantedRelief+" "+string(podOf("p").UID)), strings.Replace(plain, "granted=0", "granted=3", 1)},
		"no policy":                  {podOf("p", by("DaemonSet", "ds")), "none"},
		"of a Deployment":            {web("p"), ""},
		"of an unknown kind":         {podOf("p", by("CloneSet", "c")), ""},
		"waits":                      {waiting, ""},
		"invalid annotation":         {annotate(podOf("p"), spot.MinOnDemandAnnotation, "many"), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sign(test.pod)); diff != "" {
				t.Errorf("signature (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoFallbackOfAHeal: while a pod that was released for a heal serves on spot, its replacement
// waits for on-demand, however long it has waited.
func TestNoFallbackOfAHeal(t *testing.T) {
	for reason, want := range map[string][]string{"drain": {"spot"}, workload.HealReason: nil} {
		w := newWorld(t, nil, withAnnotations(map[string]string{spot.FallbackAfterAnnotation: "5s"}, deployment("web", 2, "1"))...)
		w.nodes(spotNode("spot"))
		w.addPods("spot", podOf("sibling", by("ReplicaSet", "web-1")))
		released := podOf("released")
		released.Annotations = map[string]string{spot.ReleasedAnnotation: fmt.Sprintf(`{"pod":%q,"replicaSet":"web-1","replicaSetUID":%q,"hash":"1","reason":%q,"at":%q}`,
			released.UID, by("ReplicaSet", "web-1").UID, reason, w.clock.Now().Format(time.RFC3339))}
		w.seen(released)
		pod := web("p")
		w.plugin.waiting.AddUnschedulable(pod, placement.Wait{})
		w.clock.Step(5 * time.Second)
		if got := w.try(pod).feasible; !slices.Equal(got, want) {
			t.Errorf("the replacement of a pod that was released for %q may run on %v, want %v", reason, got, want)
		}
	}
}
