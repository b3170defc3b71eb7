package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	// impending is a taint of GKE, with a notice of 30 s.
	impending   = "cloud.google.com/impending-node-termination"
	breakerOpen = "spot_aware_scheduler_breaker_open"
)

// TestFalseAlarm: all spot nodes get a notice of 30 s, and none is reclaimed. make test-long has
// larger alarms (breaker_long_test.go).
func TestFalseAlarm(t *testing.T) {
	falseAlarm(t, fleet{pools: 2, perPool: 6, webs: 4, sets: 2}, impending, 30*time.Second, nil)
}

// fleet is a cluster with spot nodes and workloads. Each web is a Deployment of six replicas, and
// each set a StatefulSet of three. One replica of each is on on-demand, its floor.
type fleet struct{ pools, perPool, webs, sets int }

// replicas returns the replicas of each workload.
func (f fleet) replicas() map[string]int {
	all := map[string]int{}
	for i := range f.webs {
		all[fmt.Sprintf("web-%d", i)] = 6
	}
	for i := range f.sets {
		all[fmt.Sprintf("set-%d", i)] = 3
	}
	return all
}

// nodes returns the names of the spot nodes of a pool.
func (f fleet) nodes(pool int) (names []string) {
	for _, spec := range f.specs(pool) {
		names = append(names, spec.Name)
	}
	return names
}

func (f fleet) specs(pool int) []lab.NodeSpec {
	specs := live.Nodes(fmt.Sprintf("spot-%d", pool), lab.Spot, fmt.Sprintf("c%d.large", pool), f.perPool, 3)
	for i := range specs {
		specs[i].Zone = "zone-a"
	}
	return specs
}

func (f fleet) allNodes() (names []string) {
	for pool := range f.pools {
		names = append(names, f.nodes(pool)...)
	}
	return names
}

// budgetOf returns the PodDisruptionBudget of a workload, and how many replicas it requires. Every
// second budget allows no eviction.
func budgetOf(app string, replicas int) (spec policyv1.PodDisruptionBudgetSpec, least int) {
	if app[len(app)-1]%2 == 0 {
		return maxUnavailable("1"), replicas - 1
	}
	return maxUnavailable("0"), replicas
}

// startFleet starts a fleet and a controller.
func startFleet(t *testing.T, f fleet, with live.Settings) *scenario {
	t.Helper()
	s := placeFleet(t, f)
	s.StartController(interruptionsOnly().With(with))
	s.Eventually(soon, s.HasMetric(s.Controller, 0, breakerOpen, nil))
	return s
}

// placeFleet starts a fleet without a controller. On-demand has room for the floors and for a third
// of the other replicas.
func placeFleet(t *testing.T, f fleet) *scenario {
	t.Helper()
	replicas := f.replicas()
	s := start(t, live.OnDemand(3, (len(replicas)+2)/3)...)
	for pool := range f.pools {
		s.AddNodes(f.specs(pool)...)
	}
	want := map[string]split{}
	var group errgroup.Group
	group.SetLimit(16)
	for app, n := range replicas {
		want[app] = split{OnDemand: 1, Spot: n - 1}
		group.Go(func() error {
			if strings.HasPrefix(app, "web") {
				s.Deploy(app, n)
			} else {
				s.deploySet(app, n)
			}
			return nil
		})
	}
	_ = group.Wait()
	s.Eventually(2*time.Minute, s.HaveReadySplits(want))
	for app, n := range replicas {
		spec, _ := budgetOf(app, n)
		s.budget(app, app, spec)
	}
	s.AddNodes(live.Nodes("spare", lab.OnDemand, "m5.xlarge", 3, (5*f.webs+2*f.sets)/9)...)
	return s
}

func (s *scenario) deploySet(name string, n int) {
	s.Helper()
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: live.PodTemplate(name),
		},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// forNodes calls do for each node, many at a time.
func (s *scenario) forNodes(names []string, do func(name string)) {
	s.Helper()
	var group errgroup.Group
	group.SetLimit(50)
	for _, name := range names {
		group.Go(func() error {
			do(name)
			return nil
		})
	}
	_ = group.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// harm measures what happens to workloads.
type harm struct {
	// lost pods ended with their nodes. deleted pods were deleted in spite of their budgets.
	lost, deleted, evicted, surged int
	// missing is how long replicas were not ready, summed over replicas, and belowBudget how long
	// workloads were below their budgets, summed over workloads. outages counts the workloads that
	// had no ready replica at some moment.
	missing, belowBudget time.Duration
	outages              int
}

// measureHarm starts a measurement. The function that it returns ends it.
func (s *scenario) measureHarm(replicas map[string]int) (end func(lost int) harm) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	var h harm
	go func() {
		defer close(stopped)
		const every = 200 * time.Millisecond
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		out := map[string]bool{}
		for {
			select {
			case <-stop:
				h.outages = len(out)
				return
			case <-ticks.C:
			}
			for app, n := range replicas {
				ready := s.Seen.Serving(app, nil)
				h.missing += every * time.Duration(max(0, n-ready))
				if _, least := budgetOf(app, n); ready < least {
					h.belowBudget += every
				}
				if ready == 0 {
					out[app] = true
				}
			}
		}
	}()
	return func(lost int) harm {
		close(stop)
		<-stopped
		h.lost = lost
		for method, n := range map[string]*int{"delete": &h.deleted, "evict": &h.evicted, "surge": &h.surged} {
			var err error
			*n, err = s.MetricValue(s.Controller, "spot_aware_scheduler_migrations_total", map[string]string{"method": method, "outcome": "moved"})
			s.Must(err)
		}
		return h
	}
}

func (h harm) String() string {
	return fmt.Sprintf("%d pods lost with their nodes, %d deleted past their budgets, %d evicted without a surge, %d surged; replicas were not ready "+
		"for %s in all, workloads below their budgets for %s in all; %d outages", h.lost, h.deleted, h.evicted, h.surged, h.missing, h.belowBudget, h.outages)
}

// allReady is a check that every workload has all its replicas ready.
func (s *scenario) allReady(replicas map[string]int) func() error {
	return func() error {
		for app, n := range replicas {
			if ready := s.Seen.Serving(app, nil); ready < n {
				return fmt.Errorf("%s: %d of %d are ready", app, ready, n)
			}
		}
		return nil
	}
}

// breakerEvent is a check that the Lease of the controller has an event with this reason since
// then.
func (s *scenario) breakerEvent(reason string, since time.Time) func() error {
	return func() error {
		list, err := client.EventsV1().Events(metav1.NamespaceSystem).List(s.Ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Kind == "Lease" && !e.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
				return nil
			}
		}
		return fmt.Errorf("no event %s since %s", reason, since)
	}
}

// falseAlarm taints all spot nodes of a fleet. The nodes stay, and long after the deadline the
// taints are removed. With the breaker, no pod is deleted in spite of its budget, no workload is
// ever below its budget, and afterwards everything is as before. (Row 2 of the issue.)
func falseAlarm(t *testing.T, f fleet, taint string, notice time.Duration, with live.Settings) harm {
	replicas, nodes := f.replicas(), f.allNodes()
	s := startFleet(t, f, with)
	opens := with == nil
	if opens {
		for app, n := range replicas {
			_, least := budgetOf(app, n)
			s.Seen.RequireReady(app, least)
		}
	}
	began := time.Now()
	end := s.measureHarm(replicas)
	s.forNodes(nodes, func(name string) { s.EditNode(name, tainted(taint)) })
	t.Logf("%d nodes were tainted within %s", len(nodes), time.Since(began).Round(time.Millisecond))
	if opens {
		s.Eventually(soon, s.HasMetric(s.Controller, 1, breakerOpen, nil))
		s.Eventually(soon, s.breakerEvent("BreakerOpened", began))
		s.Eventually(soon, s.HasEvent("set-", "ReclaimNotConfirmed", "the breaker is open"))
	}
	s.RequireThroughout(time.Until(began.Add(notice+15*time.Second)), func() error { return nil })

	// The taints are removed one after the other. Nothing confirms the remaining ones.
	for _, name := range nodes {
		s.EditNode(name, untainted(taint))
	}
	cleared := time.Now()
	s.Eventually(2*time.Minute, s.allReady(replicas))
	s.Eventually(soon, s.noPodReleased)
	for _, name := range nodes {
		s.Eventually(soon, s.marked(name, false))
	}
	s.Eventually(soon, s.HasMetric(s.Controller, 0, breakerOpen, nil))
	result := end(0)
	t.Logf("%s; all was as before %s after the alarm", result, time.Since(cleared).Round(time.Second))
	for app, n := range replicas {
		if strings.HasPrefix(app, "web") {
			s.Eventually(soon, s.complete(app, n))
		}
	}
	if !opens {
		return result
	}
	s.Eventually(soon, s.breakerEvent("BreakerClosed", cleared))
	if result.deleted > 0 {
		t.Errorf("%d pods were deleted, want none", result.deleted)
	}
	if result.surged == 0 {
		t.Error("no pod has surged, although there was room for some")
	}
	return result
}

// trueAlarm taints these nodes of a fleet. After half of the notice, on-demand nodes for all pods
// are added, as by an autoscaler. The tainted nodes vanish at the deadline. No workload is ever
// without a ready replica.
func trueAlarm(t *testing.T, f fleet, nodes []string, notice time.Duration, open bool, with live.Settings) harm {
	replicas := f.replicas()
	s := startFleet(t, f, with)
	for app := range replicas {
		s.Seen.RequireReady(app, 1)
	}
	began := time.Now()
	end := s.measureHarm(replicas)
	taint := reclaimed
	if notice == 30*time.Second {
		taint = impending
	}
	s.forNodes(nodes, func(name string) { s.EditNode(name, tainted(taint)) })
	want := 0
	if open {
		want = 1
		s.Eventually(soon, s.HasMetric(s.Controller, want, breakerOpen, nil))
	}
	isOpen := s.HasMetric(s.Controller, want, breakerOpen, nil)
	s.RequireThroughout(time.Until(began.Add(notice/2)), isOpen)
	s.AddNodes(live.Nodes("more", lab.OnDemand, "m5.xlarge", 10, len(nodes)*3/10+1)...)
	s.RequireThroughout(time.Until(began.Add(notice)), isOpen)
	lost := 0
	for _, record := range s.Seen.Pods("") {
		if record.Left.IsZero() && slices.Contains(nodes, record.Node) {
			lost++
		}
	}
	s.forNodes(nodes, func(name string) { s.LoseNodes(name) })
	s.Eventually(2*time.Minute, s.allReady(replicas))
	s.Eventually(soon, s.noPodReleased)
	s.Eventually(soon, s.HasMetric(s.Controller, 0, breakerOpen, nil))
	result := end(lost)
	t.Logf("%s; all were ready %s after the deadline", result, time.Since(began.Add(notice)).Round(time.Second))
	if result.outages > 0 {
		t.Errorf("%d workloads had no ready replica", result.outages)
	}
	return result
}

// TestSmallPoolReclaimed: a cluster of four spot nodes in one pool loses them all. The breaker
// stays closed, so every pod leaves its node before it vanishes. (Row 3 of the issue.)
func TestSmallPoolReclaimed(t *testing.T) {
	f := fleet{pools: 1, perPool: 4, webs: 1, sets: 1}
	if h := trueAlarm(t, f, f.allNodes(), 30*time.Second, false, nil); h.lost > 0 {
		t.Errorf("%d pods were lost with their nodes", h.lost)
	}
}
