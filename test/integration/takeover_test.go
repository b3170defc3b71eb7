package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// longestTakeover is the longest time from the last renewal of a killed leader to its successor's
// term. The standby checks the lease every retryPeriod (2 s), with a random jitter of up to 1.2
// times that period. It therefore sees the last renewal after at most 4.4 s. It considers the lease
// expired leaseDuration (15 s) later, and finds out at its next check.
const longestTakeover = 15*time.Second + 2*4400*time.Millisecond

// settle is how long a new leader waits for bindings in flight.
const settle = time.Second

// onRequests allows for the requests of a takeover on a busy machine.
const onRequests = time.Second

// TestLeaderKilledDuringPlacement kills the leader twice. In long_test.go, make test-long kills it
// five times.
func TestLeaderKilledDuringPlacement(t *testing.T) { leaderKilledDuringPlacement(t, 2) }

// leaderKilledDuringPlacement has two schedulers place 2,000 pods. During placement it kills the
// leader the given number of times, and restarts it at once, as the kubelet does. Finally it stops
// the leader gracefully.
func leaderKilledDuringPlacement(t *testing.T, kills int) {
	// Most floors find no on-demand at first. Spot has room for every replica, so a scheduler that
	// miscounts the bound pods breaches a floor.
	allOnDemand := live.OnDemand(40, 15)
	s := start(t, slices.Concat(allOnDemand[:10], live.Spot(60, 30)), limitBindings)
	onSpot, seen := s.watchSpot(), s.record()
	pair := s.startStandby()
	before := s.bindingRequests()
	want, budgets := map[string]split{}, map[string]int{}
	for i := range 40 {
		name := fmt.Sprintf("large-%d", i)
		s.Deploy(name, 50, live.Annotated(minOnDemand, "30%"))
		budgets[name] = 35
		want[name] = split{OnDemand: 15, Spot: 35}
	}
	const placeable = 40*35 + 10*15
	for round := range kills + 1 {
		killed := round < kills
		leading := s.leader(pair)
		s.Eventually(soon, func() error {
			if len(seen.since(0)) == 0 {
				return fmt.Errorf("no scheduler leads yet")
			}
			return nil
		})
		terms := seen.since(0)
		s.Eventually(manyPods, seen.boundAtLeast(200*(round+1)))
		how := "killed"
		if killed {
			s.Must(pair[leading].Kill())
		} else {
			how = "stopped"
			s.Must(pair[leading].Stop())
		}
		ended, left := time.Now(), seen.bound()
		if left >= placeable {
			t.Errorf("%s too late: %d pods were bound", how, left)
		}
		again, err := controlPlane.StartAgain(pair[leading])
		s.Must(err)
		pair[leading] = again

		s.Eventually(longestTakeover+onRequests, func() error {
			if len(seen.since(len(terms))) == 0 {
				return fmt.Errorf("no scheduler has taken over")
			}
			return nil
		})
		last, next := seen.since(len(terms) - 1)[0], seen.since(len(terms))[0]
		took := next.acquired.Sub(last.renewed)
		var waited float64
		s.Eventually(soon, func() (err error) {
			if waited, err = live.Metric(s.Ctx, pair[s.leader(pair)], "spot_aware_scheduler_takeover_duration_seconds", nil); err == nil && waited == 0 {
				err = fmt.Errorf("the new leader still waits for its cache")
			}
			return err
		})
		var decided time.Time
		s.Eventually(soon, func() error {
			if decided = seen.boundAfter(next.acquired); decided.IsZero() {
				return fmt.Errorf("the new leader has bound no pod")
			}
			return nil
		})
		t.Logf("round %d: %s with %d of 2,000 pods bound; lease acquired %.1f s after its last renewal, %.1f s after the end; "+
			"the leader waited %.2f s; next binding seen %.1f s after the end",
			round+1, how, left, took.Seconds(), next.acquired.Sub(ended).Seconds(), waited, decided.Sub(ended).Seconds())
		if killed && decided.Sub(next.acquired) < settle {
			t.Errorf("the new leader bound a pod %s after it acquired the lease, want at least %s", decided.Sub(next.acquired), settle)
		}
		if took > longestTakeover+onRequests {
			t.Errorf("the takeover took %s from the last renewal, want at most %s", took, longestTakeover)
		}
		if !killed && next.acquired.Sub(ended) > 4400*time.Millisecond+onRequests {
			t.Errorf("the leader released its lease, but the next leader acquired it %s later", next.acquired.Sub(ended))
		}
	}
	s.Eventually(manyPods, seen.boundAtLeast(placeable))
	s.AddNodes(allOnDemand[10:]...)
	s.Eventually(manyPods, s.haveSplits(want))
	s.requireWithinBudgets(onSpot(), budgets)
	s.requireBoundOnce(seen, before, 2000)
}

// startStandby starts a second scheduler beside the scenario's leader, and returns both. They stop
// when the test ends.
func (s *scenario) startStandby() []*lab.Process {
	s.Helper()
	second, err := controlPlane.StartScheduler(s.Ctx, s.options)
	s.Must(err)
	pair := []*lab.Process{s.Scheduler, second}
	s.Cleanup(func() {
		for _, p := range pair {
			if s.Failed() {
				s.Logf("a scheduler's log ends with:\n%s", live.Tail(p.Log, 20))
			}
			if err := p.Kill(); err != nil {
				s.Error(err)
			}
		}
	})
	return pair
}

// TestTakeoverWithDelayedWatch reproduces kubernetes #137308. The standby knows the pods, but its
// watch is delayed. When it becomes the leader, it does not know yet that the pods are bound.
func TestTakeoverWithDelayedWatch(t *testing.T) {
	s := start(t, nil)
	seen := s.record()
	s.Eventually(soon, seen.hasLeader)
	proxy := s.NewProxy(map[string]func(string) bool{"/api/v1/pods": func(string) bool { return true }})
	behind := s.options
	behind.Name, behind.Kubeconfig = "standby", proxy.Kubeconfig(s.Scenario, controlPlane.SchedulerKubeconfig)
	standby, err := controlPlane.StartScheduler(s.Ctx, behind)
	s.Must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the standby's log ends with:\n" + live.Tail(standby.Log, 40))
		}
		if err := standby.Kill(); err != nil {
			t.Error(err)
		}
	})
	before := s.bindingRequests()

	placed, want := map[string]split{}, map[string]split{}
	for i := range 20 {
		name := fmt.Sprintf("app-%d", i)
		s.Deploy(name, 10, live.Annotated(minOnDemand, "3"))
		placed[name], want[name] = split{Spot: 7, Waiting: 3}, split{Spot: 7, OnDemand: 3}
	}
	s.Eventually(soon, func() error {
		if pending, err := live.Metric(s.Ctx, standby, "scheduler_pending_pods", nil); err != nil || pending != 200 {
			return fmt.Errorf("the standby knows %v of 200 pods, %v", pending, err)
		}
		return nil
	})
	proxy.Hold()
	s.AddNodes(live.Spot(5, 30)...)
	s.Eventually(soon, s.haveSplits(placed))
	s.Must(s.Scheduler.Kill())
	s.Eventually(longestTakeover+onRequests, func() error {
		if len(seen.since(1)) == 0 {
			return fmt.Errorf("the standby has not taken over")
		}
		return nil
	})

	// The leader logs every 5 seconds why it waits. By then, a leader that does not wait would have
	// bound its first pods.
	s.Eventually(soon, func() error {
		if log := live.Tail(standby.Log, 1000); !strings.Contains(log, "Scheduling waits until the watch of pods has caught up") || !strings.Contains(log, "missing=140") {
			return fmt.Errorf("the standby does not log that it waits for 140 pods")
		}
		return nil
	})
	s.Must(s.haveSplits(placed)())
	if tried, err := live.Metric(s.Ctx, standby, "scheduler_schedule_attempts_total", nil); err != nil || tried != 0 {
		t.Errorf("the new leader has tried to schedule %v pods, %v", tried, err)
	}
	proxy.Release()
	s.Eventually(soon, func() error {
		if waited, err := live.Metric(s.Ctx, standby, "spot_aware_scheduler_takeover_duration_seconds", nil); err != nil || waited == 0 {
			return fmt.Errorf("the new leader still waits, %v", err)
		}
		return nil
	})
	s.AddNodes(live.OnDemand(4, 15)...)
	s.Eventually(soon, s.haveSplits(want))
	s.requireBoundOnce(seen, before, 200)
}
