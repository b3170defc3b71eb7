package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The tests of this file have a size. make test runs them small; make test-long (long_test.go)
// runs them at full size.

func TestMassReclaim(t *testing.T)                  { massReclaim(t, 30, 60) }
func TestMassReclaimWithRoomForFloors(t *testing.T) { massReclaimForFloors(t, 10) }
func TestControllerKilledDuringMoves(t *testing.T)  { controllerKilledDuringMoves(t, 10, 4) }

// forEachApp calls do for each of n apps, several at a time. It ends the test if one call failed
// it.
func (s *scenario) forEachApp(n int, do func(app string)) {
	s.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			do(fmt.Sprintf("app-%d", i))
			return nil
		})
	}
	_ = group.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// massReclaim reclaims all spot nodes within a second. Each node runs some ten pods, and each
// workload has five; each namespace has twenty workloads. Half of the workloads have hard
// topology constraints. On-demand has room for all pods. The test compares the time with the time
// that this machine takes for as many replacements.
func massReclaim(t *testing.T, nodes, workloads int) {
	const perWorkload, notice = 5, 2 * time.Minute
	slots := perWorkload*workloads/nodes + 2 // not all free slots satisfy the constraints
	s := start(t, live.Spot(nodes, slots)...)
	want, moved := map[string]split{}, map[string]split{}
	parts, scenarioOf := s.splitIntoNamespaces(workloads/20), map[string]*scenario{}
	for i := range workloads {
		app := fmt.Sprintf("app-%d", i)
		scenarioOf[app] = parts[i%len(parts)]
		want[app], moved[app] = split{Spot: perWorkload}, split{OnDemand: perWorkload}
	}
	s.forEachApp(workloads, func(app string) {
		edits := []func(*appsv1.Deployment){live.Annotated(minOnDemand, "0")}
		if i, err := strconv.Atoi(strings.TrimPrefix(app, "app-")); err == nil && i%2 == 1 {
			edits = append(edits, live.SpreadOver(v1.LabelTopologyZone), live.SpreadOver(v1.LabelHostname))
		}
		scenarioOf[app].Deploy(app, perWorkload, edits...)
	})
	s.Eventually(5*time.Minute, s.HaveReadySplits(want))
	s.forEachApp(workloads, func(app string) { scenarioOf[app].budget(app, app, maxUnavailable("1")) })
	s.StartController(interruptionsOnly()) // its admission policy is part of the load of each pod
	floor := s.replacementTime(want)
	t.Logf("%d pods deleted at once were replaced after %s", workloads*perWorkload, floor.Round(10*time.Millisecond))
	for app := range want {
		s.Seen.RequireReady(app, perWorkload-1) // from now on: the measurement above deleted pods regardless of budgets
	}
	s.AddNodes(live.OnDemand(nodes, slots)...)

	before := len(s.Seen.Removed(""))
	began := time.Now()
	deadline := began.Add(notice)
	var group errgroup.Group
	group.SetLimit(50)
	for i := range nodes {
		group.Go(func() error {
			s.notice(fmt.Sprintf("spot-%d", i+1), notice)
			return nil
		})
	}
	_ = group.Wait()
	t.Logf("%d nodes with %d pods got notice within %s", nodes, workloads*perWorkload, time.Since(began).Round(time.Millisecond))
	s.Eventually(notice, s.haveBeenRemoved(before+workloads*perWorkload))
	if !time.Now().Before(deadline) {
		t.Errorf("the last pod left %s after the deadline", time.Since(deadline).Round(time.Millisecond))
	}
	var took []time.Duration
	methods := map[string]int{}
	for _, record := range s.Seen.Removed("") {
		if record.Left.After(began) {
			took = append(took, record.Left.Sub(began))
			methods[record.Method()]++
		}
	}
	t.Logf("the p99 is %.2f times what it took to replace pods that were deleted at once", percentile(took, 99).Seconds()/floor.Seconds())
	moves, events := s.mostRequestsPerSecond(began, "pods", "nodes"), s.rateExcess(began, 20, "events")
	t.Logf("notice to deletion: p50 %s, p99 %s, last %s; methods %v; at most %d requests for pods and nodes in a second; of events up to %d more "+
		"than 20 a second", percentile(took, 50), percentile(took, 99), percentile(took, 100), methods, moves, events)
	if methods["deleted"] > 0 {
		t.Errorf("%d pods were deleted, want all to leave by surge or eviction", methods["deleted"])
	}
	// The limits are 200 requests a second on average and a burst of 200. Requests may arrive
	// closer together than they were sent: up to 50 for moves and 50 for marks are in flight at a
	// time.
	if moves > 500 {
		t.Errorf("%d requests for pods and nodes in a second: want at most 400, and 100 in flight", moves)
	}
	// The limits for events are 20 a second and a burst of 100. No request arrives before it was
	// sent.
	if events > 100 {
		t.Errorf("%d requests for events more than 20 a second: want at most 100", events)
	}
	s.Eventually(2*soon, s.HaveReadySplits(moved))
	s.Eventually(soon, s.noPodReleased)
}

// replacementTime deletes all pods of the apps at once and returns the time until as many are
// ready again. This is the time that the API server, the controllers and the scheduler take for
// these replacements on this machine.
func (s *scenario) replacementTime(apps map[string]split) time.Duration {
	s.Helper()
	var pods []v1.Pod
	for _, namespace := range append(s.Others, s.Namespace) {
		list, err := live.Pods(s.Ctx, client, namespace, metav1.ListOptions{})
		s.Must(err)
		pods = append(pods, list...)
	}
	before := len(s.Seen.Removed(""))
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(50)
	for _, pod := range pods {
		group.Go(func() error {
			return client.CoreV1().Pods(pod.Namespace).Delete(s.Ctx, pod.Name, metav1.DeleteOptions{})
		})
	}
	s.Must(group.Wait())
	s.Eventually(5*time.Minute, s.haveBeenRemoved(before+len(pods)))
	s.Eventually(5*time.Minute, func() error {
		for app, n := range apps {
			if ready := s.Seen.Serving(app, nil); ready != n.OnDemand+n.Spot {
				return fmt.Errorf("%s: %d are ready", app, ready)
			}
		}
		return nil
	})
	took := time.Since(began)
	s.Eventually(soon, s.HaveReadySplits(apps))
	return took
}

// percentile returns the smallest duration that is at least as long as p percent of the
// durations.
func percentile(durations []time.Duration, p int) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	slices.Sort(durations)
	return durations[max(0, (len(durations)*p+99)/100-1)].Round(10 * time.Millisecond)
}

// massReclaimForFloors reclaims all spot nodes, on which all replicas of every workload run.
// On-demand has room for one replica of each workload, its floor.
func massReclaimForFloors(t *testing.T, workloads int) {
	const perWorkload, notice = 5, 40 * time.Second
	s := start(t, live.Spot(workloads, perWorkload)...)
	want := map[string]split{}
	s.forEachApp(workloads, func(app string) { s.Deploy(app, perWorkload, live.Annotated(fallbackAfter, "3s")) })
	for i := range workloads {
		want[fmt.Sprintf("app-%d", i)] = split{Spot: perWorkload}
	}
	s.Eventually(3*time.Minute, s.HaveReadySplits(want))
	for i := range workloads {
		s.Seen.RequireReady(fmt.Sprintf("app-%d", i), 1)
	}
	s.AddNodes(live.OnDemand(1, workloads)...)
	var deadline time.Time // the latest deadline
	deadlines := map[string]time.Time{}
	for i := range workloads {
		node := fmt.Sprintf("spot-%d", i+1)
		deadline = s.notice(node, notice)
		deadlines[node] = deadline
	}
	// The first plan must contain all nodes. A plan cannot keep room for floors that are threatened
	// only by a later notice. The nodes stay, and an open breaker would not delete their pods.
	s.StartController(interruptionsOnly().With(live.Settings{"interruption.breaker.maxPercent": 100}))

	// One replica of each workload leaves early, to the only slot for its floor.
	early := func(app string) (n int) {
		for _, record := range s.Seen.Removed(app) {
			if record.Left.Before(deadlines[record.Node].Add(-5 * time.Second)) {
				n++
			}
		}
		return n
	}
	s.Eventually(time.Until(deadline)+soon, s.haveBeenRemoved(workloads*perWorkload))
	s.forEachApp(workloads, func(app string) {
		if n := early(app); n != 1 {
			t.Errorf("%d pods of %s left early, want the one with room elsewhere", n, app)
		}
		splits, err := live.Splits(s.Ctx, client, s.Namespace)
		if got := splits[app]; err != nil || got.OnDemand != 1 {
			t.Errorf("%s has the split %+v, %v, want its floor of 1 on on-demand", app, got, err)
		}
	})
}

// controllerKilledDuringMoves kills the leader of two controllers at random moments while this many
// workloads surge.
func controllerKilledDuringMoves(t *testing.T, workloads, kills int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := start(t, live.Spot(1, 2*workloads)...)
	before, after := map[string]split{}, map[string]split{}
	s.forEachApp(workloads, func(app string) { s.Deploy(app, 2, live.Annotated(minOnDemand, "0")) })
	for i := range workloads {
		app := fmt.Sprintf("app-%d", i)
		before[app], after[app] = split{Spot: 2}, split{Spot: 2}
	}
	s.Eventually(3*time.Minute, s.HaveReadySplits(before))
	s.forEachApp(workloads, func(app string) { s.protect(app, 2, maxUnavailable("0")) })
	with := interruptionsOnly()
	with["leaderElection.leaseDuration"] = "2s"
	// On a busy machine, a leader may fail to renew this short lease. It then ends as intended,
	// which is one more kill.
	controllers := []*supervised{s.supervise(s.StartAnotherController(with), 0), s.supervise(s.StartAnotherController(with), 0)}

	// Pods move from node to node repeatedly, so surges are always in progress.
	current := "spot-1"
	for kill := range kills {
		next := fmt.Sprintf("next-%d-1", kill)
		s.AddNodes(live.Nodes(fmt.Sprintf("next-%d", kill), lab.Spot, "c5.xlarge", 1, 2*workloads)...)
		s.EditNode(current, tainted(reclaimed))
		time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond) // the random moment
		s.Must(controllers[random.IntN(len(controllers))].running().Kill())
		// A leader that is killed during an eviction may have used the budget without effect: the
		// API server has charged the budget but deletes no pod for a disconnected client.
		// Kubernetes restores the budget after 2 minutes. The notice ends then, too.
		s.Eventually(2*time.Minute+soon, s.empty(current))
		s.EditNode(current, untainted(reclaimed))
		s.Eventually(soon, s.marked(current, false))
		s.Eventually(soon, s.HaveReadySplits(after))
		s.Must(client.CoreV1().Nodes().Delete(s.Ctx, current, metav1.DeleteOptions{}))
		current = next
	}
	s.Eventually(soon, s.noPodReleased)
	s.forEachApp(workloads, func(app string) {
		if err := live.Until(s.Ctx, soon, s.complete(app, 2)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the controllers were restarted %d and %d times", controllers[0].count(), controllers[1].count())
}
