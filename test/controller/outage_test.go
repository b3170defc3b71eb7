package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestOutage: the API server refuses connections. make test-long has an outage in which it does
// not answer (long_test.go).
func TestOutage(t *testing.T) { outage(t, (*lab.Process).Kill, (*scenario).startAPIServer) }

// outage stops the API server for 20 s during surges and evictions. All moves must end as without
// the outage: each pod leaves once, by its own method, its PodDisruptionBudget is respected, and no
// pod stays released. A program that cannot renew its lease for 10 s ends. The test restarts it, as
// a kubelet would. stop stops the API server, and restart makes it available again. (Bad input of
// the issue.)
func outage(t *testing.T, stop func(*lab.Process) error, restart func(*scenario, *lab.Process) error) {
	ownControlPlane(t)
	s := start(t, live.Spot(2, 20)...)
	replicas := s.deployMovingApps()
	s.AddNodes(live.Nodes("next", lab.Spot, "m5.xlarge", 2, 20)...)
	s.StartController(interruptionsOnly())
	scheduler, controller := s.supervise(s.Scheduler, 10*time.Second), s.supervise(s.Controller, 10*time.Second)
	nodes := []string{"spot-1", "spot-2"}
	began := time.Now()
	for _, node := range nodes {
		// The notice is long enough that no pod must be deleted. The API server may have charged
		// a budget for an eviction and stopped before it deleted the pod. Kubernetes restores
		// that budget after 2 minutes.
		s.notice(node, 10*time.Minute)
	}
	s.Eventually(soon, s.someMovesDone)

	apiServer := controlPlane.Process("kube-apiserver")
	s.Must(stop(apiServer))
	before := s.moveProgress()
	time.Sleep(20 * time.Second) // the length of the outage
	s.Must(restart(s, apiServer))
	returned := time.Now()
	s.Must(s.Seen.Follow(s.Ctx, s.Namespace))
	// The fake kubelets and Kubernetes' controllers can take over a minute to reconnect. Real
	// kubelets reconnect faster, and this test is about our controller.
	for _, name := range []string{"kwok", "kube-controller-manager"} {
		other := controlPlane.Process(name)
		s.Must(other.Kill())
		_, err := controlPlane.StartAgain(other)
		s.Must(err)
	}
	for _, node := range nodes {
		s.Eventually(3*time.Minute, s.empty(node))
	}
	t.Logf("outage with these numbers of untouched, released and deleted pods: %v; the scheduler was restarted %d times, the controller %d times; "+
		"all pods had left %.1f s after the outage", before, scheduler.count(), controller.count(), time.Since(returned).Seconds())
	for app, n := range replicas {
		s.Eventually(time.Minute, s.HasReadySplit(app, split{Spot: n}))
		s.Eventually(soon, s.complete(app, n))
	}
	s.Eventually(time.Minute, s.noPodReleased)
	s.requireMovedOnce(began, replicas)
}

// deployMovingApps creates workloads that surge, each for a different time, and workloads that are
// evicted replica by replica. The budgets of the former allow no eviction without a surge; the
// budgets of the latter allow one eviction at a time. It returns their replicas when all are
// available.
func (s *scenario) deployMovingApps() (replicas map[string]int) {
	s.Helper()
	replicas = map[string]int{}
	for i := range 6 {
		app := fmt.Sprintf("surge-%d", i)
		s.Deploy(app, 2, live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = int32(2 * i) })
		replicas[app] = 2
	}
	for i := range 3 {
		app := fmt.Sprintf("evict-%d", i)
		s.Deploy(app, 5, live.Annotated(minOnDemand, "0"), live.Annotated(surgeAnnotation, "false"))
		replicas[app] = 5
	}
	for app, n := range replicas {
		s.Eventually(2*soon, s.complete(app, n))
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

// surges reports whether a workload of deployMovingApps surges.
func surges(app string) bool { return strings.HasPrefix(app, "surge-") }

// someMovesDone is a check that some pods surge, some have surged, and evictions have begun.
func (s *scenario) someMovesDone() error {
	surging, methods := 0, map[string]int{}
	for _, record := range s.Seen.Pods("") {
		switch {
		case !record.Left.IsZero():
			methods[record.Method()]++
		case !record.Released().IsZero():
			surging++
		}
	}
	if surging == 0 || methods["surged"] == 0 || methods["evicted"] == 0 {
		return fmt.Errorf("%d pods surge, and have left: %v; want some of each kind", surging, methods)
	}
	return nil
}

// moveProgress counts the pods that are still on the reclaimed nodes, that are released, and that
// have left.
func (s *scenario) moveProgress() (counts [3]int) {
	for _, record := range s.Seen.Pods("") {
		switch {
		case !strings.HasPrefix(record.Node, "spot-"):
		case !record.Left.IsZero():
			counts[2]++
		case !record.Released().IsZero():
			counts[1]++
		default:
			counts[0]++
		}
	}
	return counts
}

// requireMovedOnce fails the test unless each pod on a reclaimed node left by the method of its
// workload. Since then, the controllers must not have released or evicted a pod twice, touched
// another pod, or deleted a pod.
func (s *scenario) requireMovedOnce(since time.Time, replicas map[string]int) {
	s.Helper()
	s.Eventually(soon, s.haveAllBeenRemoved(replicas))
	left := map[string]int{}
	moved := map[string]bool{}
	for _, record := range s.Seen.Removed("") {
		if record.Node == "" {
			continue // the restarted Kubernetes controllers may create an extra replica and delete it before it is bound
		}
		left[record.App]++
		moved[record.Name] = true
		want := "evicted"
		if surges(record.App) {
			want = "surged"
		}
		if method := record.Method(); method != want || !strings.HasPrefix(record.Node, "spot-") {
			s.Errorf("%s was %s from %s, want it %s from a reclaimed node", record.Name, method, record.Node, want)
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
		s.Error("the API server has logged no requests")
	}
}

func (s *scenario) startAPIServer(*lab.Process) error {
	start, err := live.StartAPIServerAgain(s.Ctx, controlPlane, client)
	s.Starts = append(s.Starts, start)
	return err
}

// supervised is a program that is restarted whenever it ends.
type supervised struct {
	mu       sync.Mutex
	process  *lab.Process // the latest process
	restarts int
}

// supervise restarts a program whenever it ends, until the test ends. Like a kubelet, it restarts
// the program at once the first time, and later after a pause.
func (s *scenario) supervise(p *lab.Process, pause time.Duration) *supervised {
	k := &supervised{process: p}
	ctx, cancel := context.WithCancel(s.Ctx)
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

// running returns the latest process of the program.
func (k *supervised) running() *lab.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// count returns the number of restarts so far.
func (k *supervised) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.restarts
}
