//go:build long

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// small has 12 spot nodes in two pools, and 30 replicas, 23 on spot. Half of its StatefulSets allow
// no eviction.
var small = fleet{pools: 2, perPool: 6, webs: 3, sets: 4}

// requireBudgets makes the test fail at every later moment at which a workload of the fleet is
// below its PodDisruptionBudget.
func (s *scenario) requireBudgets(f fleet) {
	s.Helper()
	for app, n := range f.replicas() {
		_, least := budgetOf(app, n)
		s.Seen.RequireReady(app, least)
	}
}

// requireNoDeletion fails the test if a pod was deleted in spite of its budget.
func (h harm) requireNoDeletion(t *testing.T) {
	t.Helper()
	t.Log(h)
	if h.deleted > 0 || h.outages > 0 {
		t.Errorf("%d pods were deleted past their budgets, and %d workloads had an outage; want none", h.deleted, h.outages)
	}
}

// alarmOfTwoTools sets the signals of two tools on all nodes of the small fleet. The nodes live
// until long after the deadline of the earlier signal. No workload is ever below its budget.
func alarmOfTwoTools(t *testing.T, before func(*scenario)) harm {
	s := startFleet(t, small, nil)
	before(s)
	s.requireBudgets(small)
	end := s.measureHarm(small.replicas())
	deadline := time.Now().Add(30 * time.Second)
	s.forNodes(small.allNodes(), func(name string) { s.EditNode(name, tainted(reclaimed)) })
	s.forNodes(small.allNodes(), func(name string) { s.EditNode(name, tainted(impending)) })
	s.RequireThroughout(time.Until(deadline.Add(10*time.Second)), always)
	s.expect(0, s.HasMetric(s.Controller, 1, breakerOpen, nil))
	return end(0)
}

// always is a check that never fails.
func always() error { return nil }

// expect fails the test like Eventually, but does not end it.
func (s *scenario) expect(limit time.Duration, check func() error) {
	s.Helper()
	if err := live.Until(s.Ctx, limit, check); err != nil {
		s.Error(err)
	}
}

// TestLongAlarmOfTwoTools: two tools announce the reclaim of all spot nodes, and no node ends. The
// signal of one tool does not confirm the signal of the other.
func TestLongAlarmOfTwoTools(t *testing.T) {
	h := alarmOfTwoTools(t, func(*scenario) {})
	h.requireNoDeletion(t)
	if h.surged == 0 {
		t.Error("no pod has surged, although there was room for some")
	}
}

// TestLongAlarmWithForcedBreaker: the same after `kubectl spot breaker open`. The controller evicts
// no pod without a ready replacement.
func TestLongAlarmWithForcedBreaker(t *testing.T) {
	h := alarmOfTwoTools(t, func(s *scenario) {
		s.removeSwitchesAtEnd()
		s.KubectlSpot("breaker", "open")
		s.Eventually(soon, s.HasMetric(s.Controller, 1, breakerOpen, nil))
	})
	h.requireNoDeletion(t)
	if h.evicted > 0 {
		t.Errorf("%d pods were evicted without a surge, want none", h.evicted)
	}
}

// TestLongResumeAfterDeadline: a user pauses the controller during a notice, and resumes it ten
// seconds after the deadline. The nodes live. Their deadline means nothing then: no workload is
// ever below its budget.
func TestLongResumeAfterDeadline(t *testing.T) {
	nodes := small.allNodes()[:8] // too few for the breaker
	s := startFleet(t, small, nil)
	s.requireBudgets(small)
	end := s.measureHarm(small.replicas())
	s.pause()
	s.Eventually(soon, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_paused", map[string]string{"cause": "reclaim"}))
	deadline := time.Now().Add(30 * time.Second)
	s.forNodes(nodes, func(name string) { s.EditNode(name, tainted(impending)) })
	s.RequireThroughout(time.Until(deadline.Add(10*time.Second)), always)
	s.KubectlSpot("resume")
	s.Eventually(soon, s.HasMetric(s.Controller, 0, "spot_aware_scheduler_paused", map[string]string{"cause": "reclaim"}))
	s.Eventually(soon, func() error {
		if len(s.Seen.ReleasedOrRemoved("")) == 0 {
			return fmt.Errorf("no pod is moved after the pause")
		}
		return nil
	})
	s.RequireThroughout(15*time.Second, always)
	end(0).requireNoDeletion(t)
}

// TestLongCreepingAlarm: three nodes get a signal, and are Ready 30 s after their deadline. The
// breaker opens for these nodes, and for each node that gets the signal afterwards. From then on,
// no workload is below its budget. The other bound of the breaker is disabled.
func TestLongCreepingAlarm(t *testing.T) {
	const signal, notice = "example.com/reclaimed", 10 * time.Second
	s := placeFleet(t, small)
	s.startWithSignal(map[string]any{"taint": signal, "class": "reclaim", "onlySpot": true, "notice": notice.String()},
		interruptionsOnly().With(live.Settings{"interruption.breaker.minNodes": 100}))
	nodes := small.allNodes()
	for _, name := range nodes {
		s.renew(name, false, nil) // evidence requires a kubelet that renews the Lease of its node
	}
	first, others := nodes[:3], nodes[3:]
	s.forNodes(first, func(name string) { s.EditNode(name, tainted(signal)) })
	judged := time.Now().Add(notice + 30*time.Second)
	s.expect(time.Until(judged)+soon, s.HasMetric(s.Controller, 1, breakerOpen, nil))
	if early := time.Until(judged); early > time.Second {
		t.Errorf("the breaker opened %s before the nodes had outlived their deadlines", early)
	}
	replicas := small.replicas()
	s.Eventually(2*soon, s.allReady(replicas))
	s.requireBudgets(small)
	before := s.deletedAtDeadline()
	for _, name := range others {
		s.EditNode(name, tainted(signal))
		s.RequireThroughout(time.Second, always)
	}
	s.RequireThroughout(notice+5*time.Second, always)
	if n := s.deletedAtDeadline() - before; n > 0 {
		t.Errorf("%d pods were deleted past their budgets after the third node had outlived its deadline, want none", n)
	}
}

// deletedAtDeadline returns how many pods the controller has deleted in spite of their budgets.
func (s *scenario) deletedAtDeadline() int {
	s.Helper()
	n, err := s.MetricValue(s.Controller, "spot_aware_scheduler_migrations_total", map[string]string{"method": "delete", "outcome": "moved"})
	s.Must(err)
	return n
}

// TestLongLossOfAllSpot: all spot nodes get a notice of 30 s, and vanish at its end. The breaker is
// open. On-demand has room for all pods. The replicas of StatefulSets are evicted one after the
// other within their budgets, all other replicas surge, and no floor is undercut.
func TestLongLossOfAllSpot(t *testing.T) {
	s := startFleet(t, small, nil)
	s.AddNodes(live.Nodes("more", lab.OnDemand, "m5.xlarge", 4, 6)...)
	replicas, nodes := small.replicas(), small.allNodes()
	for app := range replicas {
		s.Seen.RequireFloor(app, 1)
	}
	s.requireBudgets(small)
	began := time.Now()
	end := s.measureHarm(replicas)
	s.forNodes(nodes, func(name string) { s.EditNode(name, tainted(impending)) })
	s.Eventually(soon, s.HasMetric(s.Controller, 1, breakerOpen, nil))
	s.RequireThroughout(time.Until(began.Add(30*time.Second)), s.HasMetric(s.Controller, 1, breakerOpen, nil))

	// A workload whose budget allows no eviction loses its replicas with the nodes. That includes a
	// budget that counts the successor of an evicted pod as disrupted for two minutes, because the
	// pod has the same name: Kubernetes does that if it sees the successor before the eviction.
	var lost []live.PodRecord
	for _, record := range s.Seen.Pods("") {
		if record.Left.IsZero() && slices.Contains(nodes, record.Node) {
			lost = append(lost, record)
		}
	}
	end(len(lost)).requireNoDeletion(t)
	for app := range replicas {
		s.Seen.RequireServing(app, 1)
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	allowed := map[string]int32{}
	for i := range budgets.Items {
		allowed[budgets.Items[i].Name] = budgets.Items[i].Status.DisruptionsAllowed
	}
	s.forNodes(nodes, func(name string) { s.LoseNodes(name) })
	for _, record := range lost {
		if forbidden := strings.HasPrefix(record.App, "set") && allowed[record.App] == 0; !forbidden {
			t.Errorf("pod %s of %s ended with its node, want it evicted before", record.Name, record.App)
		}
	}
	for app := range replicas {
		if strings.HasPrefix(app, "set") && evictable(app) {
			s.requireEvictedInTurn(app, nodes)
		}
	}
	s.Eventually(2*time.Minute, s.allReady(replicas))
}

// evictable reports whether the budget of a workload of a fleet allows an eviction.
func evictable(app string) bool {
	_, least := budgetOf(app, 2)
	return least < 2
}

// requireEvictedInTurn fails the test unless all replicas of a StatefulSet on these nodes were
// evicted, each after the replacement of the one before was ready.
func (s *scenario) requireEvictedInTurn(app string, nodes []string) {
	s.Helper()
	var before live.PodRecord
	for _, record := range s.Seen.Removed(app) {
		if !slices.Contains(nodes, record.Node) || !record.Evicted {
			continue
		}
		if replacement := s.Seen.Pod(before.Name); before.Name != "" && (replacement.Ready.IsZero() || replacement.Ready.After(record.Left)) {
			s.Errorf("pod %s was evicted at %s, before the replacement of pod %s was ready", record.Name, record.Left.Format("15:04:05.000"), before.Name)
		}
		before = record
	}
	if before.Name == "" {
		s.Errorf("%s: no pod was evicted", app)
	}
}

// startWithSignal starts a controller whose policy has one more signal.
func (s *scenario) startWithSignal(signal map[string]any, with live.Settings) {
	s.Helper()
	var err error
	s.Controller, err = s.Plane.StartController(s.Ctx, lab.ControllerOptions{
		Edit: with.Edit, EditScheduler: live.Settings{"signals": []any{signal}}.EditSafety, Flags: []string{"-v=2"},
	})
	s.Must(err)
	s.Eventually(soon, s.HasMetric(s.Controller, 0, breakerOpen, nil))
}
