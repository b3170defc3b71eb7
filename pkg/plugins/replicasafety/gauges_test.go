package replicasafety

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
)

// A scrape reports floors over all live revisions of a workload, and for pods of this profile only.
func TestObserveFloors(t *testing.T) {
	on := func(node string, pods ...*v1.Pod) []runtime.Object {
		var objects []runtime.Object
		for _, pod := range pods {
			pod.Spec.NodeName = node
			objects = append(objects, pod)
		}
		return objects
	}
	podIn := func(name, replicaSet string) *v1.Pod { return podOf(name, by("ReplicaSet", replicaSet)) }
	foreign, exempt := podOf("foreign"), podOf("exempt")
	foreign.Spec.SchedulerName = "default-scheduler"
	exempt.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
	fixed := func(name string) *v1.Pod {
		pod := web(name)
		pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "on-demand"}
		return pod
	}
	released := func(name string) *v1.Pod {
		pod := podOf(name)
		pod.Annotations = map[string]string{spot.ReleasedAnnotation: "{}"}
		return pod
	}
	floor2 := map[string]string{spot.MinOnDemandAnnotation: "2"}
	// bound returns the expected pods on on-demand within and beyond the floor, then the same on
	// spot.
	bound := func(floor, beyond, spotFloor, spotBeyond int) map[profilemetrics.BoundPart]int {
		return map[profilemetrics.BoundPart]int{
			{Capacity: decision.OnDemand, Floor: true}: floor, {Capacity: decision.OnDemand}: beyond,
			{Capacity: decision.Spot, Floor: true}: spotFloor, {Capacity: decision.Spot}: spotBeyond,
		}
	}
	cases := map[string]struct {
		objects                [][]runtime.Object
		wantUnmet, wantDeficit int
		wantBound              map[profilemetrics.BoundPart]int
	}{
		"met":                           {[][]runtime.Object{deployment("web", 3, "1"), on("on-demand", web("a")), on("spot", web("b"), web("c"))}, 0, 0, bound(1, 0, 0, 2)},
		"all on spot":                   {[][]runtime.Object{withAnnotations(floor2, deployment("web", 3, "1")), on("spot", web("a"), web("b"), web("c"))}, 1, 2, bound(0, 0, 2, 1)},
		"floor capped at the live pods": {[][]runtime.Object{withAnnotations(floor2, deployment("web", 3, "1")), on("spot", web("a"))}, 1, 1, bound(0, 0, 1, 0)},
		"one pod waits":                 {[][]runtime.Object{deployment("web", 3, "1"), on("spot", web("a"), web("b")), on("", web("c"))}, 1, 1, bound(0, 0, 1, 1)},
		"over revisions, met":           {[][]runtime.Object{deployment("web", 3, "1", "2"), on("on-demand", podIn("a", "web-1")), on("spot", podIn("b", "web-2"), podIn("c", "web-2"))}, 0, 0, bound(1, 0, 0, 2)},
		"over revisions, unmet":         {[][]runtime.Object{withAnnotations(floor2, deployment("web", 3, "1", "2")), on("on-demand", podIn("a", "web-1")), on("spot", podIn("b", "web-2"), podIn("c", "web-2"))}, 1, 1, bound(1, 0, 1, 1)},
		"on-demand pod terminates":      {[][]runtime.Object{deployment("web", 2, "1"), on("on-demand", terminating(web("a"))), on("spot", web("b"))}, 1, 1, bound(0, 0, 1, 0)},
		"on a deleted node":             {[][]runtime.Object{on("gone", podOf("a"))}, 1, 1, bound(0, 0, 0, 0)},
		"beyond the floor":              {[][]runtime.Object{deployment("web", 3, "1"), on("on-demand", web("a"), web("b")), on("spot", web("c"))}, 0, 0, bound(1, 1, 0, 1)},
		"all require on-demand":         {[][]runtime.Object{deployment("web", 3, "1"), on("on-demand", fixed("a"), fixed("b"), fixed("c"))}, 0, 0, bound(1, 0, 0, 0)},
		"some require on-demand":        {[][]runtime.Object{withAnnotations(floor2, deployment("web", 5, "1")), on("on-demand", fixed("a"), web("b"), fixed("c"), fixed("d"), web("e"))}, 0, 0, bound(2, 2, 0, 0)},
		"one requires on-demand":        {[][]runtime.Object{withAnnotations(floor2, deployment("web", 3, "1")), on("on-demand", fixed("a"), web("b"), web("c"))}, 0, 0, bound(2, 1, 0, 0)},
		"several workloads":             {[][]runtime.Object{deployment("web", 2, "1"), on("spot", web("a"), podOf("single"))}, 2, 2, bound(0, 0, 2, 0)},
		"some pods are released":        {[][]runtime.Object{deployment("web", 2, "1"), on("on-demand", web("a"), released("b")), on("spot", released("c"), web("d"))}, 0, 0, bound(1, 0, 0, 1)},
		"no pods of this profile":       {[][]runtime.Object{on("spot", foreign, exempt, podOf("daemon", by("DaemonSet", "ds")))}, 0, 0, nil},
		"unknown owner":                 {[][]runtime.Object{on("spot", web("a"))}, 0, 0, nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{onDemand("on-demand"), spotNode("spot")}
			for _, more := range test.objects {
				objects = append(objects, more...)
			}
			got := newWorld(t, nil, objects...).plugin.cluster.Read()
			if got.FloorsUnmet != test.wantUnmet || got.FloorDeficit != test.wantDeficit {
				t.Errorf("FloorsUnmet, FloorDeficit = %d, %d; want %d, %d", got.FloorsUnmet, got.FloorDeficit, test.wantUnmet, test.wantDeficit)
			}
			if diff := cmp.Diff(test.wantBound, got.Bound, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Bound (-want +got):\n%s", diff)
			}
		})
	}
}

// If exemptions are ignored, a pod that admits only spot counts like any other pod, and its
// workload has a deficit.
func TestObserveIgnoredExemptions(t *testing.T) {
	pod := podOf("p")
	pod.Spec.NodeName, pod.Spec.NodeSelector = "spot", map[string]string{spot.CapacityLabel: "spot"}
	for policy, want := range map[config.Exemptions]int{config.AllowExemptions: 0, config.IgnoreExemptions: 1} {
		args := func(a *config.ReplicaSafetyArgs) { a.Exemptions = &policy }
		got := newWorld(t, args, onDemand("on-demand"), spotNode("spot"), pod).plugin.cluster.Read()
		if got.FloorsUnmet != want || got.FloorDeficit != want {
			t.Errorf("%s: FloorsUnmet, FloorDeficit = %d, %d; want %d", policy, got.FloorsUnmet, got.FloorDeficit, want)
		}
	}
}

// The longest deficit is that of one workload. Deficits of other workloads do not extend it.
func TestObserveLongestDeficit(t *testing.T) {
	w := newWorld(t, nil, onDemand("on-demand"), spotNode("spot"))
	pods := w.factory.Core().V1().Pods().Informer().GetStore()
	for _, step := range []struct {
		after      time.Duration
		come, gone string
		on         string
		want       time.Duration
	}{
		{come: "a", on: "spot"},
		{after: 10 * time.Minute, come: "b", on: "spot", want: 10 * time.Minute},
		{after: time.Minute, gone: "a", come: "c", on: "spot", want: time.Minute},
		{after: time.Minute, come: "b", on: "on-demand", want: time.Minute},
		{after: time.Minute, come: "c", on: "on-demand"},
		{after: time.Minute, come: "c", on: "spot"},
	} {
		w.clock.Step(step.after)
		pod := podOf(step.come)
		pod.Spec.NodeName = step.on
		if err := errors.Join(pods.Add(pod), pods.Delete(podOf(step.gone))); err != nil {
			t.Fatal(err)
		}
		if got := w.plugin.cluster.Read().LongestDeficit; got != step.want {
			t.Errorf("%+v: LongestDeficit = %v", step, got)
		}
	}
}

func TestObserveNodesAndWaiting(t *testing.T) {
	contradictory := newNode("contradictory", "")
	contradictory.Labels["karpenter.sh/capacity-type"], contradictory.Labels["eks.amazonaws.com/capacityType"] = "spot", "ON_DEMAND"
	settled := newNode("settled", "")
	settled.CreationTimestamp = metav1.NewTime(now.Add(-30e9))
	w := newWorld(t, nil, onDemand("on-demand"), spotNode("spot-1"), spotNode("spot-2"), young("young"), settled, contradictory)
	w.plugin.waiting.AddUnschedulable(podOf("p"), placement.Wait{ForOnDemand: true})
	w.clock.Step(time.Second)
	want := profilemetrics.Gauges{
		Bound: map[profilemetrics.BoundPart]int{}, CachesSynced: true, WaitingForOnDemand: 1, LongestWait: time.Second,
		Nodes: map[decision.Capacity]int{
			{Type: decision.OnDemand, Source: decision.FromLabel}:     1,
			{Type: decision.Spot, Source: decision.FromLabel}:         2,
			{Type: decision.Spot, Source: decision.Settling}:          1,
			{Type: decision.OnDemand, Source: decision.FromDefault}:   1,
			{Type: decision.Spot, Source: decision.FromContradiction}: 1,
		},
	}
	if diff := cmp.Diff(want, w.plugin.cluster.Read()); diff != "" {
		t.Errorf("gauges (-want +got):\n%s", diff)
	}
}
