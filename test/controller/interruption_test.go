package controller

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestSingletonIsReplacedFirst: singletons run on spot because they waited too long for
// on-demand. Their PodDisruptionBudgets allow no eviction.
func TestSingletonIsReplacedFirst(t *testing.T) {
	s := start(t, live.Spot(1, 10)...)
	budgets := map[string]policyv1.PodDisruptionBudgetSpec{"min": minAvailable("1"), "max": maxUnavailable("0")}
	for app := range budgets {
		s.Deploy(app, 1, live.Annotated(fallbackAfter, "3s"))
	}
	for app, budget := range budgets {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: 1}))
		s.protect(app, 1, budget)
		s.serve(app, 1)
	}
	s.AddNodes(live.OnDemand(1, 10)...)
	s.StartController(interruptionsOnly())

	began := time.Now()
	s.EditNode("spot-1", tainted(reclaimed))
	s.Eventually(30*time.Second, s.empty("spot-1"))
	t.Logf("deleted after %s", time.Since(began).Round(100*time.Millisecond))
	s.Eventually(soon, s.Moved(2, 2, "surge", "interruption"))
	for app := range budgets {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
		s.Eventually(soon, s.complete(app, 1))
		s.Eventually(soon, s.HasEvent(app+"-", "ReleasedToMove", "interruption"))
	}
	s.Eventually(soon, s.noPodReleased)
}

// TestMostReplicasOnInterruptedNode: seven of ten replicas run on the node to be reclaimed, under a
// PodDisruptionBudget of 80 %. One workload surges and one is evicted.
func TestMostReplicasOnInterruptedNode(t *testing.T) {
	methods := map[string]string{"surge": "true", "evict": "false"}
	s := start(t, append(live.Spot(1, 14), live.OnDemand(1, 6)...)...)
	for method, value := range methods {
		s.Deploy(method, 10, live.Annotated(minOnDemand, "3"), live.Annotated(surgeAnnotation, value))
	}
	for method := range methods {
		s.Eventually(soon, s.HasReadySplit(method, split{OnDemand: 3, Spot: 7}))
		s.protect(method, 10, minAvailable("80%"))
		s.serve(method, 8)
	}
	s.AddNodes(live.Nodes("more", lab.Spot, "m5.xlarge", 2, 10)...)
	s.StartController(interruptionsOnly())

	began := time.Now()
	s.notice("spot-1", 2*time.Minute)
	s.Eventually(115*time.Second, s.empty("spot-1"))
	t.Logf("deleted after %s", time.Since(began).Round(100*time.Millisecond))
	for method := range methods {
		s.Eventually(soon, s.HasReadySplit(method, split{OnDemand: 3, Spot: 7}))
		s.Eventually(soon, s.complete(method, 10))
		s.Eventually(soon, s.Moved(7, 14, method, "interruption"))
		for _, record := range s.Seen.Removed(method) {
			if surged := !record.Released().IsZero(); surged != (method == "surge") {
				t.Errorf("%s: released: %t, want the method %s", record.Name, surged, method)
			}
		}
	}
}

// TestBlockedPodsAreDeletedAtLastMoment: the PodDisruptionBudget of a StatefulSet's pod allows no
// eviction, so the pod runs until only its grace period is left. A pod that two budgets match
// runs until the deadline, because the API server rejects its eviction.
func TestBlockedPodsAreDeletedAtLastMoment(t *testing.T) {
	const grace = 5 * time.Second
	s := start(t, live.Spot(1, 5)...)
	template := live.PodTemplate("set")
	template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Annotations: map[string]string{minOnDemand: "0"}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Deploy("app", 1, live.Annotated(minOnDemand, "0"))
	for _, app := range []string{"set", "app"} {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: 1}))
	}
	s.budget("set", "set", maxUnavailable("0"))
	s.budget("first", "app", maxUnavailable("1"))
	s.budget("second", "app", maxUnavailable("1"))
	s.serve("app", 1)
	s.AddNodes(live.OnDemand(1, 5)...)
	s.StartController(interruptionsOnly())

	deadline := s.notice("spot-1", 30*time.Second)
	s.Eventually(soon, s.HasEvent("set-0", "EvictionBlocked", "PodDisruptionBudget"))
	s.Eventually(soon, s.HasEvent("app-", "EvictionBlocked", "several PodDisruptionBudgets"))
	s.requireRemovalAt("set", deadline.Add(-grace))
	s.requireRemovalAt("app", deadline.Add(-time.Second)) // its grace period of 0 s is raised to the minimum of 1 s
	s.Eventually(soon, s.HasEvent("set-0", "DeletedAtDeadline", ""))
	s.Eventually(soon, s.HasEvent("app-", "DeletedAtDeadline", ""))
	s.Eventually(soon, s.Moved(2, 2, "delete", "interruption"))
	for _, reason := range []string{"disruption-budget", "several-disruption-budgets"} {
		s.Must(s.HasMetric(s.Controller, 1, "spot_aware_scheduler_evictions_blocked_total", map[string]string{"reason": reason})())
	}
	s.Eventually(soon, s.HasReadySplit("set", split{OnDemand: 1}))
	s.Eventually(soon, s.complete("app", 1))
}

// requireRemovalAt waits until one pod of the app leaves. The test fails unless that happens within
// two seconds after this moment.
func (s *scenario) requireRemovalAt(app string, moment time.Time) {
	s.Helper()
	s.Eventually(time.Until(moment)+soon, func() error {
		if len(s.Seen.Removed(app)) == 0 {
			return fmt.Errorf("%s has not left, %s after its last moment", app, time.Since(moment).Round(time.Millisecond))
		}
		return nil
	})
	record := s.Seen.Removed(app)[0]
	late := record.Left.Sub(moment).Round(time.Millisecond)
	s.Logf("%s left %s after its last moment", record.Name, late)
	if late < -100*time.Millisecond || late > 2*time.Second {
		s.Errorf("%s left %s after its last moment, want 0 s to 2 s", record.Name, late)
	}
	if record.Evicted {
		s.Errorf("%s was evicted, want it deleted", record.Name)
	}
}

// TestClearedSignals: the controller removes its marks when signals are cleared or expire, and
// preserves the changes of other actors on nodes.
func TestClearedSignals(t *testing.T) {
	s := start(t, append(live.Spot(3, 5), live.OnDemand(1, 5)...)...)
	with := interruptionsOnly()
	with["interruption.advisory.enabled"], with["interruption.advisory.timeLimit"], with["interruption.advisory.pause"] = true, "10s", "1h"
	s.Deploy("app", 2, live.Annotated(minOnDemand, "0"), live.OnlyOn(v1.LabelHostname, "spot-1"))
	s.Eventually(soon, s.HasReadySplit("app", split{Spot: 2}))
	cordoned := func(n *v1.Node) { n.Spec.Unschedulable = true }
	for _, name := range []string{"spot-1", "spot-2", "spot-3"} {
		s.EditNode(name, tainted("example.com/foreign"))
	}
	s.EditNode("spot-1", cordoned)
	s.EditNode("spot-2", cordoned)
	s.StartController(with)

	s.EditNode("spot-1", tainted(advised))
	s.EditNode("spot-2", tainted(reclaimed))
	s.announce("spot-3", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)) // set by a user, and never cleared
	s.Eventually(soon, s.marked("spot-1", true))
	s.Eventually(soon, s.marked("spot-2", true))
	s.EditNode("spot-2", untainted(reclaimed))
	s.Eventually(soon, s.marked("spot-2", false))
	s.Eventually(10*time.Second+soon, s.marked("spot-1", false))
	if state, ok := s.Node("spot-2").Annotations[stateAnnotation]; ok {
		t.Errorf("the controller did not remove its state from spot-2: %s", state)
	}
	// The advisory signal still exists but has expired. It must not mark the node again.
	s.RequireThroughout(5*time.Second, s.marked("spot-1", false))
	for name, want := range map[string][]string{
		"spot-1": {"example.com/foreign", advised, v1.TaintNodeUnschedulable},
		"spot-2": {"example.com/foreign", v1.TaintNodeUnschedulable},
		"spot-3": {"example.com/foreign", interruptionTaint},
	} {
		node := s.Node(name)
		has := map[string]bool{}
		for _, taint := range node.Spec.Taints {
			has[taint.Key] = true
		}
		for _, key := range want {
			if !has[key] {
				t.Errorf("%s has lost its taint %s", name, key)
			}
		}
		if len(has) != len(want) || node.Spec.Unschedulable != (name != "spot-3") {
			t.Errorf("%s has the taints %v and unschedulable=%t, want %v", name, has, node.Spec.Unschedulable, want)
		}
	}
	// Only spot-1 has room for the replacements, so advisory moves no pods.
	if touched := s.Seen.ReleasedOrRemoved("app"); len(touched) > 0 {
		t.Errorf("moved although no node has room: %q", touched)
	}
}

// TestAdvisorySignalEnabled: if the configuration enables it, pods leave a node with an advisory
// signal.
func TestAdvisorySignalEnabled(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.Deploy("app", 2, live.Annotated(minOnDemand, "0"))
	s.Eventually(soon, s.HasReadySplit("app", split{Spot: 2}))
	s.protect("app", 2, maxUnavailable("0"))
	s.AddNodes(live.Nodes("calm", lab.Spot, "m5.xlarge", 1, 5)...)
	with := interruptionsOnly()
	with["interruption.advisory.enabled"] = true
	s.StartController(with)
	s.EditNode("spot-1", tainted(advised))
	s.Eventually(2*soon, s.empty("spot-1"))
	s.Eventually(soon, s.Moved(2, 2, "surge", "advisory"))
	s.Eventually(soon, s.complete("app", 2))
}

// TestAdvisorySignalByDefault: with the shipped configuration, an advisory signal moves no
// pods.
func TestAdvisorySignalByDefault(t *testing.T) {
	s := start(t, live.Spot(2, 5)...)
	s.Deploy("app", 4, live.Annotated(minOnDemand, "0"))
	s.Eventually(soon, s.HasReadySplit("app", split{Spot: 4}))
	s.StartController(nil)
	s.EditNode("spot-1", tainted(advised))
	s.RequireThroughout(5*time.Second, func() error {
		if touched := s.Seen.ReleasedOrRemoved(""); len(touched) > 0 {
			return fmt.Errorf("moved: %q", touched)
		}
		return s.marked("spot-1", false)()
	})
}

// TestDryRun: a dry run reports the planned moves and changes nothing.
func TestDryRun(t *testing.T) {
	s := start(t, append(live.Spot(1, 3), live.OnDemand(1, 1)...)...)
	s.Deploy("app", 4)
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 1, Spot: 3}))
	s.AddNodes(live.Nodes("more", lab.Spot, "m5.xlarge", 1, 10)...)
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	began := time.Now()
	s.StartController(interruptionsOnly(), "--dry-run")
	s.notice("spot-1", 2*time.Minute)
	reported := s.HasMetric(s.Controller, 3, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "interruption", "outcome": "dry-run"})
	s.Eventually(soon, reported)
	s.RequireThroughout(5*time.Second, reported)
	s.Must(s.HasMetric(s.Controller, 3, "spot_aware_scheduler_migrations_total", nil)())
	log := live.Tail(s.Controller.Log, math.MaxInt)
	for _, pod := range pods {
		if would := strings.Contains(log, pod.Name); would != (pod.Spec.NodeName == "spot-1") {
			t.Errorf("%s on %s is in the log: %t", pod.Name, pod.Spec.NodeName, would)
		}
	}
	if writes := s.writes(began); len(writes) > 0 {
		t.Errorf("a dry run wrote: %v", writes)
	}
	if touched := s.Seen.ReleasedOrRemoved(""); len(touched) > 0 {
		t.Errorf("touched: %q", touched)
	}

	// Without the dry run, the controller makes the same moves.
	s.Must(s.Controller.Stop())
	s.StartController(interruptionsOnly())
	s.Eventually(2*soon, s.empty("spot-1"))
	s.Eventually(soon, s.Moved(3, 3, "surge", "interruption"))
}

// TestBadDeadlines: an annotation that cannot be parsed, a deadline in the past, and a deadline
// by a clock that is two minutes ahead.
func TestBadDeadlines(t *testing.T) {
	const group = "example.com/group"
	leftOver := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	tests := []struct {
		name, deadline string
		// added is the time in the taint; zero: the taint has none.
		added time.Time
		// within limits the time until the node is empty.
		within time.Duration
		method string
	}{
		{"past", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-2 * time.Hour), 30 * time.Second, "surge"},
		{"no-time", "tomorrow", time.Time{}, 30 * time.Second, "surge"},
		{"two-minutes-on", time.Now().Add(4 * time.Minute).UTC().Format(time.RFC3339), time.Time{}, 30 * time.Second, "surge"},
		{"left-over", leftOver, time.Time{}, 30 * time.Second, "surge"},
	}
	// Each app has a spot node of its own, and an on-demand node for its replacement.
	node := func(capacity, name string) lab.NodeSpec {
		spec := live.Nodes(capacity+"-"+name, capacity, "m5.xlarge", 1, 5)[0]
		spec.Labels = map[string]string{group: name}
		return spec
	}
	s := start(t)
	for _, test := range tests {
		s.AddNodes(node(lab.Spot, test.name))
		s.Deploy(test.name, 1, live.Annotated(minOnDemand, "0"), live.OnlyOn(group, test.name))
	}
	for _, test := range tests {
		s.Eventually(soon, s.HasReadySplit(test.name, split{Spot: 1}))
		s.AddNodes(node(lab.OnDemand, test.name))
	}
	s.StartController(interruptionsOnly())
	began := time.Now()
	for _, test := range tests {
		s.announce(node(lab.Spot, test.name).Name, test.deadline, func(taint *v1.Taint) {
			if !test.added.IsZero() {
				taint.TimeAdded = &metav1.Time{Time: test.added}
			}
		})
	}
	for _, test := range tests { // shortest limit first
		s.Eventually(time.Until(began.Add(test.within)), s.empty(node(lab.Spot, test.name).Name))
	}
	s.Eventually(soon, s.Moved(4, 4, "surge", "interruption"))
	for _, test := range tests {
		s.Eventually(soon, s.HasReadySplit(test.name, split{OnDemand: 1}))
		for _, record := range s.Seen.Removed(test.name) {
			if deleted := !record.Evicted; deleted != (test.method == "delete") {
				t.Errorf("%s was %s, want the method %s", record.Name, record.Method(), test.method)
			}
		}
		got := s.Node(node(lab.Spot, test.name).Name).Annotations[deadlineAnnotation]
		if replaced := got != test.deadline; replaced != (test.deadline == leftOver) {
			t.Errorf("the user's annotation is %q now, and was %q", got, test.deadline)
		}
	}
}

// TestNodeDeletedDuringMoves: the node is deleted while its pods are still leaving.
func TestNodeDeletedDuringMoves(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.Deploy("app", 3, live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
	s.Eventually(soon, s.HasReadySplit("app", split{Spot: 3}))
	s.AddNodes(live.OnDemand(1, 5)...)
	s.StartController(interruptionsOnly())
	s.notice("spot-1", 2*time.Minute)
	s.Eventually(soon, s.released("app", 3))
	s.Must(client.CoreV1().Nodes().Delete(s.Ctx, "spot-1", metav1.DeleteOptions{}))
	// Without their node the pods are not ready, so the controller does not wait for replacements.
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 3}))
	s.Eventually(soon, s.noPodReleased)
	s.Eventually(soon, s.HasMetric(s.Controller, 3, "spot_aware_scheduler_pods_lost_with_node_total", nil))
}
