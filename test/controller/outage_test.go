package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestOutage: connections are refused. make test-long has one where nobody answers on them (long_test.go).
func TestOutage(t *testing.T) { outage(t, (*lab.Process).Kill, (*scenario).startAPIServer) }

// outage takes the API server away for 20 s in the middle of surges and evictions, and expects that they end as if it had been there: each
// pod leaves once, by its own way, its PodDisruptionBudget is kept, and no pod stays released. Who cannot renew its lease for 10 s ends; a
// kubelet starts it again, and so does this test. leave takes the API server away, back brings it back. (Bad input of the issue.)
func outage(t *testing.T, leave func(*lab.Process) error, back func(*scenario, *lab.Process) error) {
	ownControlPlane(t)
	s := start(t, live.Spot(2, 20)...)
	replicas := s.deployMovers()
	s.addNodes(live.Nodes("next", lab.Spot, "m5.xlarge", 2, 20)...)
	s.control(interruptionsOnly())
	scheduler, controller := s.keep(s.scheduler, 10*time.Second), s.keep(s.controller, 10*time.Second)
	nodes := []string{"spot-1", "spot-2"}
	began := time.Now()
	for _, node := range nodes {
		// Long enough that nothing has to be deleted, also where the API server has charged a budget for an eviction and went away before the
		// pod did: Kubernetes gives that back after 2 minutes.
		s.notice(node, 10*time.Minute)
	}
	s.eventually(soon, s.inTheMiddle)

	apiServer := controlPlane.Process("kube-apiserver")
	s.must(leave(apiServer))
	before := s.states()
	time.Sleep(20 * time.Second) // the length of the outage
	s.must(back(s, apiServer))
	returned := time.Now()
	s.seen.follow(s, s.namespace)
	// The fake kubelets and Kubernetes' controllers can take over a minute to connect again. Real ones do not wait for so long, and it is this
	// controller that is looked at.
	for _, name := range []string{"kwok", "kube-controller-manager"} {
		other := controlPlane.Process(name)
		s.must(other.Kill())
		_, err := controlPlane.StartAgain(other)
		s.must(err)
	}
	for _, node := range nodes {
		s.eventually(3*time.Minute, s.empty(node))
	}
	t.Logf("away with so many pods untouched, released and gone: %v; the scheduler was started again %d times, the controller %d times; "+
		"all were gone %.1f s after the return", before, scheduler.count(), controller.count(), time.Since(returned).Seconds())
	for app, n := range replicas {
		s.eventually(time.Minute, s.is(app, split{Spot: n}))
		s.eventually(soon, s.whole(app, n))
	}
	s.eventually(time.Minute, s.nothingReleased)
	s.movedOnce(began, replicas)
}

// deployMovers makes workloads of which some surge, each for a time of its own, and some are evicted replica by replica, under budgets that
// surges need and evictions keep. It returns their replicas when all are available.
func (s *scenario) deployMovers() (replicas map[string]int) {
	s.Helper()
	replicas = map[string]int{}
	for i := range 6 {
		app := fmt.Sprintf("surge-%d", i)
		s.deploy(app, 2, annotated(minOnDemand, "0"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = int32(2 * i) })
		replicas[app] = 2
	}
	for i := range 3 {
		app := fmt.Sprintf("evict-%d", i)
		s.deploy(app, 5, annotated(minOnDemand, "0"), annotated(surgeAnnotation, "false"))
		replicas[app] = 5
	}
	for app, n := range replicas {
		s.eventually(2*soon, s.whole(app, n))
		budget := maxUnavailable("0")
		if surges(app) {
			s.serve(app, n)
		} else {
			budget = maxUnavailable("1")
			s.serve(app, n-1)
		}
		s.protect(app, n, budget)
	}
	return replicas
}

// surges reports whether a workload of deployMovers does.
func surges(app string) bool { return strings.HasPrefix(app, "surge-") }

// inTheMiddle is a check that some pods surge and others have done so, and that evictions have begun.
func (s *scenario) inTheMiddle() error {
	surging, ways := 0, map[string]int{}
	for _, at := range s.seen.all("") {
		switch {
		case !at.leaves.IsZero():
			ways[at.way()]++
		case !at.released.IsZero():
			surging++
		}
	}
	if surging == 0 || ways["surged"] == 0 || ways["evicted"] == 0 {
		return fmt.Errorf("%d pods surge, and have left: %v; want some of each", surging, ways)
	}
	return nil
}

// states counts the pods on the nodes that go that stay so far, that are released, and that have left.
func (s *scenario) states() (counts [3]int) {
	for _, at := range s.seen.all("") {
		switch {
		case !strings.HasPrefix(at.node, "spot-"):
		case !at.leaves.IsZero():
			counts[2]++
		case !at.released.IsZero():
			counts[1]++
		default:
			counts[0]++
		}
	}
	return counts
}

// movedOnce fails the test unless each pod that was on a node which had to be emptied left by its workload's way, and the controllers have
// since then released and evicted none twice, touched no other and deleted none.
func (s *scenario) movedOnce(since time.Time, replicas map[string]int) {
	s.Helper()
	s.eventually(soon, s.haveAllLeft(replicas))
	left := map[string]int{}
	moved := map[string]bool{}
	for _, at := range s.seen.left("") {
		if at.node == "" {
			continue // the test restarts Kubernetes' controllers: they may create a replica too many, and delete it while it waits for a node
		}
		left[at.app]++
		moved[at.name] = true
		want := "evicted"
		if surges(at.app) {
			want = "surged"
		}
		if way := at.way(); way != want || !strings.HasPrefix(at.node, "spot-") {
			s.Errorf("%s was %s from %s, want it to be %s from a node that goes", at.name, way, at.node, want)
		}
	}
	for app, n := range replicas {
		if left[app] != n {
			s.Errorf("%d pods of %s have left, want %d", left[app], app, n)
		}
	}
	done := map[string]int{}
	for _, r := range s.writes(since) {
		if r.resource != "pods" || r.code[0] != '2' {
			continue
		}
		what := r.verb + " " + r.resource + "/" + r.subresource + " " + r.name
		if done[what]++; done[what] > 1 || r.verb == "delete" || !moved[r.name] {
			s.Errorf("done %d times, to a pod that had to move: %t: %s", done[what], moved[r.name], r)
		}
	}
	if len(done) == 0 {
		s.Error("the API server has written down nothing")
	}
}

func (s *scenario) startAPIServer(*lab.Process) error {
	start, err := live.StartAPIServerAgain(s.ctx, controlPlane, client)
	s.starts = append(s.starts, start)
	return err
}

// kept is a program that is started again whenever it ends.
type kept struct {
	mu       sync.Mutex
	process  *lab.Process // the last that was started
	restarts int
}

// keep starts a program again whenever it ends, until the test ends: at once the first time and then after a pause, like a kubelet.
func (s *scenario) keep(p *lab.Process, pause time.Duration) *kept {
	k := &kept{process: p}
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for after := time.Duration(0); ; after = pause {
			select {
			case <-k.running().Done():
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(after):
			case <-ctx.Done():
				return
			}
			again, err := controlPlane.StartAgain(k.running())
			if err != nil {
				s.Error(err)
				return
			}
			k.mu.Lock()
			k.process = again
			k.restarts++
			k.mu.Unlock()
		}
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
	})
	return k
}

// running returns the program as it was started last.
func (k *kept) running() *lab.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// count tells how often it was started again so far.
func (k *kept) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.restarts
}
