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
		edits := []func(*appsv1.Deployment){annotated(minOnDemand, "0")}
		if i, err := strconv.Atoi(strings.TrimPrefix(app, "app-")); err == nil && i%2 == 1 {
			edits = append(edits, spreadOver(v1.LabelTopologyZone), spreadOver(v1.LabelHostname))
		}
		scenarioOf[app].deploy(app, perWorkload, edits...)
	})
	s.eventually(5*time.Minute, s.haveSplits(want))
	s.forEachApp(workloads, func(app string) { scenarioOf[app].budget(app, app, maxUnavailable("1")) })
	s.startController(interruptionsOnly()) // its admission policy is part of the load of each pod
	floor := s.replacementTime(want)
	t.Logf("%d pods deleted at once were replaced after %s", workloads*perWorkload, floor.Round(10*time.Millisecond))
	for app := range want {
		s.seen.requireReady(app, perWorkload-1) // from now on: the measurement above deleted pods regardless of budgets
	}
	s.addNodes(live.OnDemand(nodes, slots)...)

	before := s.seen.removedCount()
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
	s.eventually(notice, s.haveBeenRemoved(before+workloads*perWorkload))
	if !time.Now().Before(deadline) {
		t.Errorf("the last pod left %s after the deadline", time.Since(deadline).Round(time.Millisecond))
	}
	var took []time.Duration
	methods := map[string]int{}
	for _, record := range s.seen.removed("") {
		if record.leaves.After(began) {
			took = append(took, record.leaves.Sub(began))
			methods[record.method()]++
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
	s.eventually(2*soon, s.haveSplits(moved))
	s.eventually(soon, s.noPodReleased)
}

// replacementTime deletes all pods of the apps at once and returns the time until as many are
// ready again. This is the time that the API server, the controllers and the scheduler take for
// these replacements on this machine.
func (s *scenario) replacementTime(apps map[string]split) time.Duration {
	s.Helper()
	var pods []v1.Pod
	for _, namespace := range append(s.others, s.namespace) {
		list, err := live.Pods(s.ctx, client, namespace, metav1.ListOptions{})
		s.must(err)
		pods = append(pods, list...)
	}
	before := s.seen.removedCount()
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(50)
	for _, pod := range pods {
		group.Go(func() error {
			return client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{})
		})
	}
	s.must(group.Wait())
	s.eventually(5*time.Minute, s.haveBeenRemoved(before+len(pods)))
	s.eventually(5*time.Minute, func() error {
		for app, n := range apps {
			if ready := s.seen.readyOf(app); ready != n.OnDemand+n.Spot {
				return fmt.Errorf("%s: %d are ready", app, ready)
			}
		}
		return nil
	})
	took := time.Since(began)
	s.eventually(soon, s.haveSplits(apps))
	return took
}

// spreadOver returns an edit that spreads the pods over a topology key.
func spreadOver(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: d.Spec.Selector})
	}
}

// method returns the method by which the pod was moved.
func (record podRecord) method() string {
	switch {
	case !record.evicted:
		return "deleted"
	case !record.released.IsZero():
		return "surged"
	}
	return "evicted"
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
	s.forEachApp(workloads, func(app string) { s.deploy(app, perWorkload, annotated(fallbackAfter, "3s")) })
	for i := range workloads {
		want[fmt.Sprintf("app-%d", i)] = split{Spot: perWorkload}
	}
	s.eventually(3*time.Minute, s.haveSplits(want))
	for i := range workloads {
		s.seen.requireReady(fmt.Sprintf("app-%d", i), 1)
	}
	s.addNodes(live.OnDemand(1, workloads)...)
	var deadline time.Time // the latest deadline
	deadlines := map[string]time.Time{}
	for i := range workloads {
		node := fmt.Sprintf("spot-%d", i+1)
		deadline = s.notice(node, notice)
		deadlines[node] = deadline
	}
	// The first plan must contain all nodes. A plan cannot keep room for floors that are threatened
	// only by a later notice.
	s.startController(interruptionsOnly())

	// One replica of each workload leaves early, to the only slot for its floor.
	early := func(app string) (n int) {
		for _, record := range s.seen.removed(app) {
			if record.leaves.Before(deadlines[record.node].Add(-5 * time.Second)) {
				n++
			}
		}
		return n
	}
	s.eventually(time.Until(deadline)+soon, s.haveBeenRemoved(workloads*perWorkload))
	s.forEachApp(workloads, func(app string) {
		if n := early(app); n != 1 {
			t.Errorf("%d pods of %s left early, want the one with room elsewhere", n, app)
		}
		splits, err := live.Splits(s.ctx, client, s.namespace)
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
	s.forEachApp(workloads, func(app string) { s.deploy(app, 2, annotated(minOnDemand, "0")) })
	for i := range workloads {
		app := fmt.Sprintf("app-%d", i)
		before[app], after[app] = split{Spot: 2}, split{Spot: 2}
	}
	s.eventually(3*time.Minute, s.haveSplits(before))
	s.forEachApp(workloads, func(app string) { s.protect(app, 2, maxUnavailable("0")) })
	with := interruptionsOnly()
	with["leaderElection.leaseDuration"] = "2s"
	// On a busy machine, a leader may fail to renew this short lease. It then ends as intended,
	// which is one more kill.
	controllers := []*supervised{s.supervise(s.startAnotherController(with), 0), s.supervise(s.startAnotherController(with), 0)}

	// Pods move from node to node repeatedly, so surges are always in progress.
	current := "spot-1"
	for kill := range kills {
		next := fmt.Sprintf("next-%d-1", kill)
		s.addNodes(live.Nodes(fmt.Sprintf("next-%d", kill), lab.Spot, "c5.xlarge", 1, 2*workloads)...)
		s.editNode(current, tainted(reclaimed))
		time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond) // the random moment
		s.must(controllers[random.IntN(len(controllers))].running().Kill())
		// A leader that is killed during an eviction may have used the budget without effect: the
		// API server has charged the budget but deletes no pod for a disconnected client.
		// Kubernetes restores the budget after 2 minutes. The notice ends then, too.
		s.eventually(2*time.Minute+soon, s.empty(current))
		s.editNode(current, untainted(reclaimed))
		s.eventually(soon, s.marked(current, false))
		s.eventually(soon, s.haveSplits(after))
		s.must(client.CoreV1().Nodes().Delete(s.ctx, current, metav1.DeleteOptions{}))
		current = next
	}
	s.eventually(soon, s.noPodReleased)
	s.forEachApp(workloads, func(app string) {
		if err := live.Until(s.ctx, soon, s.complete(app, 2)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the controllers were restarted %d and %d times", controllers[0].count(), controllers[1].count())
}
