package round

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A node that autoscalers and the policy see differently is counted, and reported once, until its
// labels change.
func TestHiddenNodes(t *testing.T) {
	const karpenter = "karpenter.sh/capacity-type"
	policy := &decision.Policy{CapacityLabels: providers.CapacityLabels()}
	labels, err := gating.NewLabels(policy, []string{karpenter}, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	hiddenNodes.Create(nil)
	recorder := events.NewFakeRecorder(9)
	d := defects{recorder: recorder}
	node := func(name string, capacity decision.CapacityType, source decision.CapacitySource, label string) *snapshot.Node {
		n := clustertest.NewNode(name, "", "m/a")
		if label != "" {
			n.Labels[karpenter] = label
		}
		return &snapshot.Node{Node: n, Facts: decision.Node{Capacity: decision.Capacity{Type: capacity, Source: source}}}
	}
	first := []*snapshot.Node{
		node("hidden", decision.Spot, decision.FromLabel, ""), node("refused", decision.OnDemand, decision.FromLabel, "spot"),
		node("spot", decision.Spot, decision.FromLabel, "spot"), node("on-demand", decision.OnDemand, decision.FromLabel, "on-demand"),
		node("unlabeled", decision.OnDemand, decision.FromDefault, ""),
	}
	corrected := append([]*snapshot.Node{node("hidden", decision.Spot, decision.FromLabel, "spot")}, first[1:]...)
	for i, step := range []struct {
		nodes  []*snapshot.Node
		events int // so far
		hidden float64
	}{{first, 2, 2}, {first, 2, 2}, {corrected, 2, 1}, {first, 3, 2}} {
		d.observe(&snapshot.Snapshot{Nodes: step.nodes}, nil, labels)
		if got, err := testutil.GetGaugeMetricValue(hiddenNodes); err != nil || got != step.hidden || len(recorder.Events) != step.events {
			t.Errorf("step %d: %g hidden nodes (%v) and %d events, want %g and %d", i, got, err, len(recorder.Events), step.hidden, step.events)
		}
	}
}

// If only other schedulers place pods, the labels for their affinity are derived from the nodes,
// and the controller reports invalid labels. Beside our own scheduler it does neither.
func TestHiddenNodesOfOtherSchedulers(t *testing.T) {
	const karpenter, eks = "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"
	policy := &decision.Policy{CapacityLabels: providers.CapacityLabels()}
	labels, err := gating.NewLabels(policy, []string{karpenter}, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	hiddenNodes.Create(nil)
	nodes := []*snapshot.Node{}
	for name, label := range map[string][2]string{"spot": {eks, "SPOT"}, "on-demand": {eks, "ON_DEMAND"}, "odd": {karpenter, "odd"}, "hidden": {"scheduling.cast.ai/spot", "yes"}} {
		n := clustertest.NewNode(name, "", "m/a")
		n.Labels[label[0]] = label[1]
		nodes = append(nodes, &snapshot.Node{Node: n, Facts: decision.Node{Capacity: policy.Capacity(n.Labels, 0)}})
	}
	for name, test := range map[string]struct {
		ours, others bool
		hidden       float64
		events       int
	}{"others": {false, true, 0, 1}, "both": {true, true, 3, 3}, "ours": {true, false, 3, 3}, "no pods": {false, false, 3, 3}} {
		s := &snapshot.Snapshot{Nodes: nodes}
		if test.ours {
			s.Workloads = append(s.Workloads, &snapshot.Workload{InScope: true})
		}
		if test.others {
			s.Workloads = append(s.Workloads, &snapshot.Workload{InScope: true, KeepsScheduler: true})
		}
		recorder := events.NewFakeRecorder(9)
		d := defects{recorder: recorder, policy: policy}
		d.observe(s, nil, labels)
		faults := 0
		if got, err := testutil.GetGaugeMetricValue(hiddenNodes); err != nil || got != test.hidden || len(recorder.Events) != test.events {
			t.Errorf("%s: %g hidden nodes (%v) and %d events, want %g and %d", name, got, err, len(recorder.Events), test.hidden, test.events)
		}
		for len(recorder.Events) > 0 {
			if event := <-recorder.Events; strings.Contains(event, spot.ReasonContradictoryLabels) {
				faults++
			}
		}
		if want := map[bool]int{true: 1}[name == "others"]; faults != want {
			t.Errorf("%s: %d events about invalid labels, want %d", name, faults, want)
		}
	}
}
