package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestUnlabeledNodes(t *testing.T) {
	s := start(t, []lab.NodeSpec{{Name: "plain-1", CPU: "10"}, {Name: "plain-2", CPU: "10"}}, set("labelGrace", labelGrace.String()))
	s.Deploy("single", 1)
	s.Deploy("three", 3)
	s.Eventually(labelGrace+soon, s.runsOnNodes("single", "plain-1", "plain-2"))
	s.Eventually(soon, s.HasSplit("three", split{OnDemand: 3}))
	s.Eventually(soon, s.hasMetric(2, nodesMetric, map[string]string{"capacity_type": "on-demand", "source": "default"}))
}

const nodesMetric = "spot_aware_scheduler_nodes"

// labelGrace is the configured grace in the tests that wait until it expires.
const labelGrace = 6 * time.Second

func TestLateLabels(t *testing.T) {
	s := start(t, append(live.Spot(1, 10), live.OnDemand(1, 1)...), set("labelGrace", labelGrace.String()))
	s.Deploy("blocker", 1)
	s.Eventually(soon, s.HasSplit("blocker", split{OnDemand: 1}))
	s.Deploy("single", 1)
	waits := func(why string) { s.Helper(); s.Eventually(soon, s.pendingReason("single", 1, why)) }
	waits("spot budget used up: 0 of at most 0 replicas")

	// A new node without a label could have either capacity type. The first turns out to be spot,
	// the second on-demand.
	s.AddNodes(lab.NodeSpec{Name: "late-spot"})
	waits("node has no capacity label yet")
	s.Eventually(soon, s.hasMetric(1, nodesMetric, map[string]string{"source": "settling"}))
	s.label("late-spot", lab.CapacityLabel, lab.Spot)
	waits("2 spot budget used up")
	s.AddNodes(lab.NodeSpec{Name: "late-on-demand", CPU: "1"})
	waits("node has no capacity label yet")
	s.label("late-on-demand", lab.CapacityLabel, lab.OnDemand)
	s.Eventually(soon, s.runsOnNodes("single", "late-on-demand"))

	// A node that never gets a label counts as on-demand after labelGrace. Nothing else happens in
	// the cluster.
	s.Deploy("second", 1)
	s.AddNodes(lab.NodeSpec{Name: "never-labelled"})
	s.Eventually(labelGrace+soon, s.runsOnNodes("second", "never-labelled"))
	node, err := client.CoreV1().Nodes().Get(s.Ctx, "never-labelled", metav1.GetOptions{})
	s.Must(err)
	if waited := s.scheduledAt("second").Sub(node.CreationTimestamp.Time); waited < labelGrace || waited > labelGrace+3*time.Second {
		s.Errorf("scheduled %s after the node was created, want %s to 2 s more (both times are whole seconds)", waited, labelGrace)
	}
}

// Only spot nodes have a label, as with OpenShift, and all spot nodes have been deleted. The label
// of a new spot node still arrives after the node.
func TestLateLabelsWithoutSpotNodes(t *testing.T) {
	const label = "machine.openshift.io/interruptible-instance"
	s := start(t, []lab.NodeSpec{{Name: "plain", CPU: "1"}, {Name: "spot-old", Labels: map[string]string{label: ""}}},
		set("labelGrace", labelGrace.String()))
	s.Deploy("blocker", 1)
	s.Eventually(labelGrace+soon, s.runsOnNodes("blocker", "plain"))
	s.Deploy("single", 1)
	waits := func(why string) { s.Helper(); s.Eventually(soon, s.pendingReason("single", 1, why)) }
	waits("spot budget used up: 0 of at most 0 replicas")
	s.Must(client.CoreV1().Nodes().Delete(s.Ctx, "spot-old", metav1.DeleteOptions{}))

	s.AddNodes(lab.NodeSpec{Name: "late-spot"})
	waits("node has no capacity label yet")
	s.label("late-spot", label, "")
	waits("1 spot budget used up")

	s.Must(client.CoreV1().Nodes().Delete(s.Ctx, "late-spot", metav1.DeleteOptions{}))
	s.AddNodes(lab.NodeSpec{Name: "never-labelled"})
	s.Eventually(labelGrace+soon, s.runsOnNodes("single", "never-labelled"))
	s.Eventually(soon, func() error {
		notes, err := s.eventsOf(metav1.NamespaceDefault, "NoCapacityLabel")
		if err == nil && (notes["never-labelled"] == "" || notes["spot-old"] != "" || notes["late-spot"] != "") {
			err = fmt.Errorf("events of %v, want one of never-labelled and none of nodes that had a label", notes)
		}
		return err
	})
}

// Only spot nodes have a label, and spot is full. A new on-demand node without a label has room for
// the two singletons that wait for on-demand. It does not also have room for the two replicas that
// may run on spot.
func TestUnlabeledNodeIsReservedForFloors(t *testing.T) {
	const label = "cluster.x-k8s.io/interruptible"
	s := start(t, []lab.NodeSpec{{Name: "od-old", CPU: "1"}, {Name: "spot", CPU: "1", Labels: map[string]string{label: ""}}},
		set("labelGrace", labelGrace.String()))
	s.fillNode("spot", 1)
	s.Deploy("web", 1)
	s.Eventually(labelGrace+soon, s.runsOnNodes("web", "od-old"))
	s.Deploy("single", 1)
	s.Deploy("alone", 1)
	s.Eventually(soon, s.pendingReason("single", 1, "2 Insufficient cpu"))
	s.Eventually(soon, s.pendingReason("alone", 1, "2 Insufficient cpu"))
	s.Scale("web", 3)
	s.Eventually(soon, s.pendingReason("web", 2, "2 Insufficient cpu"))

	s.AddNodes(lab.NodeSpec{Name: "od-new", CPU: "2"})
	s.Eventually(soon, s.pendingReason("web", 2, "1 node has no capacity label yet and is reserved for pods that wait for on-demand"))
	s.Eventually(labelGrace+soon, s.runsOnNodes("single", "od-new"))
	s.Eventually(soon, s.runsOnNodes("alone", "od-new"))
	s.Eventually(soon, s.pendingReason("web", 2, "3 Insufficient cpu"))

	// The replicas of web may use the remaining capacity.
	s.AddNodes(lab.NodeSpec{Name: "od-last", CPU: "2"})
	s.Eventually(soon, s.runsOnNodes("web", "od-old", "od-last"))
}

func TestContradictoryLabels(t *testing.T) {
	s := start(t, []lab.NodeSpec{{
		Name: "both", CPU: "10", Labels: map[string]string{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
	}})
	s.Deploy("single", 1)
	s.Deploy("three", 3)
	s.Eventually(soon, s.pendingReason("single", 1, "spot budget used up: 0 of at most 0 replicas"))
	s.Eventually(soon, s.pendingReason("three", 1, "spot budget used up: 2 of at most 2 replicas"))
	s.Eventually(soon, func() error {
		notes, err := s.eventsOf(metav1.NamespaceDefault, "ContradictoryCapacityLabels")
		if err == nil && notes["both"] == "" {
			err = fmt.Errorf("no event: %v", notes)
		}
		return err
	})
	s.Eventually(soon, s.hasMetric(1, nodesMetric, map[string]string{"capacity_type": "spot", "source": "contradiction"}))

	s.label("both", lab.CapacityLabel, lab.OnDemand)
	s.Eventually(soon, s.HasSplit("single", split{OnDemand: 1}))
	s.Eventually(soon, s.HasSplit("three", split{OnDemand: 3}))
	s.Eventually(soon, s.hasMetric(0, nodesMetric, map[string]string{"source": "contradiction"}))
}

// The tables of labels and signals can be extended, and unlabeled nodes can be configured to count
// as spot.
func TestPlacementConfiguredNodes(t *testing.T) {
	node := func(name, label string, more ...string) lab.NodeSpec {
		spec := lab.NodeSpec{Name: name, CPU: "10", Labels: map[string]string{}, Annotations: map[string]string{}}
		if label != "" {
			spec.Labels["example.com/lifecycle"] = label
		}
		for _, key := range more {
			spec.Labels[key], spec.Annotations[key] = "", ""
		}
		return spec
	}
	s := start(t, []lab.NodeSpec{
		node("regular", "regular"), node("risky", "regular", "example.com/risky"), node("leaving", "regular", "example.com/leaving"),
		node("preemptible", "preemptible"), node("plain", ""),
	}, live.Settings{
		"unlabeledNodes": "Spot", "labelGrace": "0s",
		"capacityLabels": rules(map[string]any{"key": "example.com/lifecycle", "spot": []any{"preemptible"}, "onDemand": []any{"regular"}}),
		"signals": rules(
			map[string]any{"label": "example.com/leaving", "class": "drain"},
			map[string]any{"annotation": "example.com/risky", "class": "advisory"},
		),
	}.EditSafety)
	for i := range 4 {
		s.Deploy(fmt.Sprintf("single-%d", i), 1)
	}
	s.Deploy("all-spot", 6, live.Annotated(minOnDemand, "0"))
	for i := range 4 {
		s.Eventually(soon, s.runsOnNodes(fmt.Sprintf("single-%d", i), "regular"))
	}
	s.Eventually(soon, s.runsOnNodes("all-spot", "preemptible", "plain"))
	s.Eventually(soon, s.hasMetric(1, nodesMetric, map[string]string{"capacity_type": "spot", "source": "default"}))
	s.Eventually(soon, s.hasMetric(1, nodesMetric, map[string]string{"capacity_type": "spot", "source": "alias"}))
	s.Eventually(soon, s.hasMetric(3, nodesMetric, map[string]string{"capacity_type": "on-demand", "source": "alias"}))

	// The scheduler uses the node with the advisory signal only if nothing else fits, and the node
	// with the drain signal never.
	s.Deploy("many", 20, live.Annotated(minOnDemand, "100%"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"example.com/lifecycle": "regular"}
	})
	s.Eventually(soon, s.pendingReason("many", 4, "1 node is being drained, 2 Insufficient cpu"))
	if pods, err := s.Pods("many"); err != nil || len(pods) != 20 {
		s.Errorf("%d pods, %v", len(pods), err)
	}
}

// runsOnNodes returns a check that app has pods, and that all its pods are bound to these nodes.
func (s *scenario) runsOnNodes(app string, nodes ...string) func() error {
	return func() error {
		pods, err := s.Pods(app)
		if err == nil && len(pods) == 0 {
			err = fmt.Errorf("%s has no pods", app)
		}
		for _, pod := range pods {
			if !slices.Contains(nodes, pod.Spec.NodeName) {
				return fmt.Errorf("%s is on %q, want one of %v", pod.Name, pod.Spec.NodeName, nodes)
			}
		}
		return err
	}
}

func (s *scenario) label(node, key, value string) {
	s.Helper()
	s.EditNode(node, func(node *v1.Node) { node.Labels[key] = value })
}

// scheduledAt returns when the only pod of app was bound.
func (s *scenario) scheduledAt(app string) time.Time {
	s.Helper()
	pods, err := s.Pods(app)
	s.Must(err)
	condition := scheduled(&pods[0])
	if condition.Status != v1.ConditionTrue {
		s.Fatalf("%s is not bound: %+v", app, condition)
	}
	return condition.LastTransitionTime.Time
}
