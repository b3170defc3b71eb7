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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The tests of this file have a size. make test runs them small, make test-long (long_test.go) as large as they are meant to be.

func TestMassReclaim(t *testing.T)                     { massReclaim(t, 30, 60) }
func TestMassReclaimWithRoomForTheFloors(t *testing.T) { massReclaimForFloors(t, 10) }
func TestKilledWhileMoving(t *testing.T)               { killedWhileMoving(t, 10, 4) }

// forAll does something for each of n apps, several at a time, and ends the test if that failed it.
func (s *scenario) forAll(n int, do func(app string)) {
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

// massReclaim has all spot nodes go within a second, with some ten pods on each, five of each workload, and twenty workloads in each namespace.
// Half of the workloads have hard constraints of topology. On-demand has room for all. The time that it takes is compared with that of the
// machine for as many replacements.
func massReclaim(t *testing.T, nodes, workloads int) {
	const perWorkload, notice = 5, 2 * time.Minute
	slots := perWorkload*workloads/nodes + 2 // constraints cannot be met on the last free ones
	s := start(t, live.Spot(nodes, slots)...)
	want, moved := map[string]split{}, map[string]split{}
	parts, of := s.parts(workloads/20), map[string]*scenario{}
	for i := range workloads {
		app := fmt.Sprintf("app-%d", i)
		of[app] = parts[i%len(parts)]
		want[app], moved[app] = split{Spot: perWorkload}, split{OnDemand: perWorkload}
	}
	s.forAll(workloads, func(app string) {
		edits := []func(*appsv1.Deployment){annotated(minOnDemand, "0")}
		if i, err := strconv.Atoi(strings.TrimPrefix(app, "app-")); err == nil && i%2 == 1 {
			edits = append(edits, spreadOver(v1.LabelTopologyZone), spreadOver(v1.LabelHostname))
		}
		of[app].deploy(app, perWorkload, edits...)
	})
	s.eventually(5*time.Minute, s.are(want))
	s.forAll(workloads, func(app string) { of[app].budget(app, app, maxUnavailable("1")) })
	s.control(interruptionsOnly()) // its admission policy too is part of what the machine does for each pod
	floor := s.floor(want)
	t.Logf("%d pods deleted at once were replaced after %s", workloads*perWorkload, floor.Round(10*time.Millisecond))
	for app := range want {
		s.seen.promise(app, perWorkload-1) // from here on: the floor was taken with deletions, which no budget holds up
	}
	s.addNodes(live.OnDemand(nodes, slots)...)

	before := s.seen.gone()
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
	s.eventually(notice, s.haveLeft(before+workloads*perWorkload))
	if !time.Now().Before(deadline) {
		t.Errorf("the last pod left %s after the deadline", time.Since(deadline).Round(time.Millisecond))
	}
	var took []time.Duration
	ways := map[string]int{}
	for _, at := range s.seen.left("") {
		if at.leaves.After(began) {
			took = append(took, at.leaves.Sub(began))
			ways[at.way()]++
		}
	}
	t.Logf("the p99 is %.2f times what it took to replace pods that were deleted at once", percentile(took, 99).Seconds()/floor.Seconds())
	moves, events := s.busiest(began, "pods", "nodes"), s.ahead(began, 20, "events")
	t.Logf("notice to gone: p50 %s, p99 %s, last %s; ways %v; at most %d requests for pods and nodes in a second; of events up to %d more "+
		"than 20 a second", percentile(took, 50), percentile(took, 99), percentile(took, 100), ways, moves, events)
	if ways["deleted"] > 0 {
		t.Errorf("%d pods were deleted, want all to leave by surge or eviction", ways["deleted"])
	}
	// 200 a second on average, and 200 at once. They may arrive closer together than they were sent: of moves and of marks, 50 each are on
	// their way at a time.
	if moves > 500 {
		t.Errorf("in a second %d requests for pods and nodes: want at most 400 to be sent, and 100 before", moves)
	}
	// Of events 20 a second, and 100 at once. None arrives before it was sent.
	if events > 100 {
		t.Errorf("%d requests for events more than 20 a second: want at most 100", events)
	}
	s.eventually(2*soon, s.are(moved))
	s.eventually(soon, s.nothingReleased)
}

// floor deletes all pods of these apps at once, and returns how long it takes until as many are ready again: what
// API server, controllers and scheduler take for so many replacements on this machine.
func (s *scenario) floor(apps map[string]split) time.Duration {
	s.Helper()
	var pods []v1.Pod
	for _, namespace := range append(s.others, s.namespace) {
		list, err := live.Pods(s.ctx, client, namespace, metav1.ListOptions{})
		s.must(err)
		pods = append(pods, list...)
	}
	before := s.seen.gone()
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(50)
	for _, pod := range pods {
		group.Go(func() error {
			return client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{})
		})
	}
	s.must(group.Wait())
	s.eventually(5*time.Minute, s.haveLeft(before+len(pods)))
	s.eventually(5*time.Minute, func() error {
		for app, n := range apps {
			if ready := s.seen.readyOf(app); ready != n.OnDemand+n.Spot {
				return fmt.Errorf("%s: %d are ready", app, ready)
			}
		}
		return nil
	})
	took := time.Since(began)
	s.eventually(soon, s.are(apps))
	return took
}

// spreadOver is an edit that spreads the pods over a topology key.
func spreadOver(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: d.Spec.Selector})
	}
}

// way says how the pod left.
func (at sighting) way() string {
	switch {
	case !at.evicted:
		return "deleted"
	case !at.released.IsZero():
		return "surged"
	}
	return "evicted"
}

// percentile returns the smallest of durations that at least p percent of them do not exceed.
func percentile(durations []time.Duration, p int) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	slices.Sort(durations)
	return durations[max(0, (len(durations)*p+99)/100-1)].Round(10 * time.Millisecond)
}

// massReclaimForFloors has all spot nodes go, with all replicas of every workload on them; on-demand has room for one of each, which is the
// floor. (Row 5b.)
func massReclaimForFloors(t *testing.T, workloads int) {
	const perWorkload, notice = 5, 40 * time.Second
	s := start(t, live.Spot(workloads, perWorkload)...)
	want := map[string]split{}
	s.forAll(workloads, func(app string) { s.deploy(app, perWorkload, annotated(fallbackAfter, "3s")) })
	for i := range workloads {
		want[fmt.Sprintf("app-%d", i)] = split{Spot: perWorkload}
	}
	s.eventually(3*time.Minute, s.are(want))
	for i := range workloads {
		s.seen.promise(fmt.Sprintf("app-%d", i), 1)
	}
	s.addNodes(live.OnDemand(1, workloads)...)
	s.control(interruptionsOnly())
	var deadline time.Time // the last one
	deadlines := map[string]time.Time{}
	for i := range workloads {
		node := fmt.Sprintf("spot-%d", i+1)
		deadline = s.notice(node, notice)
		deadlines[node] = deadline
	}

	// One of each workload leaves early, to the one place that there is for it.
	early := func(app string) (n int) {
		for _, at := range s.seen.left(app) {
			if at.leaves.Before(deadlines[at.node].Add(-5 * time.Second)) {
				n++
			}
		}
		return n
	}
	s.eventually(time.Until(deadline)+soon, s.haveLeft(workloads*perWorkload))
	s.forAll(workloads, func(app string) {
		if n := early(app); n != 1 {
			t.Errorf("%d pods of %s left early, want the one that has room elsewhere", n, app)
		}
		splits, err := live.Splits(s.ctx, client, s.namespace)
		if at := splits[app]; err != nil || at.OnDemand != 1 {
			t.Errorf("%s stands like this: %+v, %v, want its floor of 1 on on-demand", app, at, err)
		}
	})
}

// killedWhileMoving kills the leader of two controllers at random moments while this many workloads surge. (Row 6.)
func killedWhileMoving(t *testing.T, workloads, kills int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := start(t, live.Spot(1, 2*workloads)...)
	before, after := map[string]split{}, map[string]split{}
	s.forAll(workloads, func(app string) { s.deploy(app, 2, annotated(minOnDemand, "0")) })
	for i := range workloads {
		app := fmt.Sprintf("app-%d", i)
		before[app], after[app] = split{Spot: 2}, split{Spot: 2}
	}
	s.eventually(3*time.Minute, s.are(before))
	s.forAll(workloads, func(app string) { s.protect(app, 2, maxUnavailable("0")) })
	with := interruptionsOnly()
	with["leaderElection.leaseDuration"] = "2s"
	// A leader that cannot renew so short a lease, on a machine that is busy, ends as it should: that is one kill more.
	controllers := []*kept{s.keep(s.another(with), 0), s.keep(s.another(with), 0)}

	// From one node to another, again and again: there is always something in the middle of a surge.
	current := "spot-1"
	for kill := range kills {
		next := fmt.Sprintf("next-%d-1", kill)
		s.addNodes(live.Nodes(fmt.Sprintf("next-%d", kill), lab.Spot, "c5.xlarge", 1, 2*workloads)...)
		s.editNode(current, tainted(reclaimed))
		time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond) // the random moment
		s.must(controllers[random.IntN(len(controllers))].running().Kill())
		// Who is killed in the middle of an eviction may have used up the budget for nothing: the API server has charged it, and deletes no pod
		// for a client that is gone. Kubernetes gives it back after 2 minutes, and the notice ends then too.
		s.eventually(2*time.Minute+soon, s.empty(current))
		s.editNode(current, untainted(reclaimed))
		s.eventually(soon, s.marked(current, false))
		s.eventually(soon, s.are(after))
		s.must(client.CoreV1().Nodes().Delete(s.ctx, current, metav1.DeleteOptions{}))
		current = next
	}
	s.eventually(soon, s.nothingReleased)
	s.forAll(workloads, func(app string) {
		if err := live.Until(s.ctx, soon, s.whole(app, 2)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the controllers were started again %d and %d times", controllers[0].count(), controllers[1].count())
}
