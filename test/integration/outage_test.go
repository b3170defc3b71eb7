package integration

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestOutage interrupts a component of the control plane while the scheduler places 1,000 pods.
// Scheduling must resume by itself, place all pods and breach no floor. A kube-scheduler that
// cannot renew its lease for 10 s exits. A kubelet restarts it, and so does this test.
func TestOutage(t *testing.T) {
	for _, test := range []struct {
		name      string
		component string
		length    time.Duration
		// interrupt interrupts the component, and restore ends the interruption.
		interrupt func(*lab.Process) error
		restore   func(*scenario, *lab.Process) error
	}{
		{"API server killed", "kube-apiserver", 20 * time.Second, (*lab.Process).Kill, (*scenario).startAPIServer}, // connections are refused
		{"API server paused", "kube-apiserver", 20 * time.Second, (*lab.Process).Pause, resume},
		{"etcd paused", "etcd", 10 * time.Second, (*lab.Process).Pause, resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			ownControlPlane(t)
			s := start(t, nil, limitBindings)
			seen := s.record()
			restarts := s.restartOnExit()
			want := map[string]split{}
			for i := range 20 {
				name := fmt.Sprintf("large-%d", i)
				s.Deploy(name, 50, live.Annotated(minOnDemand, "30%"))
				want[name] = split{OnDemand: 15, Spot: 35}
			}
			// The controllers also recover slowly after an outage. This test measures only the
			// scheduler, so all pods exist first.
			s.Eventually(time.Minute, func() error {
				if splits, err := s.Splits(); err != nil || waiting(splits) != 1000 {
					return fmt.Errorf("%d of 1,000 pods exist, %v", waiting(splits), err)
				}
				return nil
			})
			// Most floors find no on-demand capacity until the end. Spot has room for every
			// replica, so a scheduler that miscounts the bound pods breaches a floor.
			allOnDemand := live.OnDemand(20, 15)
			s.Must(s.Scheduler.Pause())
			s.AddNodes(slices.Concat(allOnDemand[:5], live.Spot(30, 30))...)
			s.Must(s.Scheduler.Resume())
			const placeable = 20*35 + 5*15
			s.Eventually(manyPods, seen.boundAtLeast(50))
			component := controlPlane.Process(test.component)
			s.Must(test.interrupt(component))
			left, began := seen.bound(), time.Now()
			if left >= placeable {
				t.Errorf("the outage started too late: %d pods were bound", left)
			}
			time.Sleep(test.length) // not a wait for a fact: the length of the outage
			s.Must(test.restore(s, component))
			returned := time.Now()
			// The simulated kubelets, and the controllers that watch their leases, can take over a
			// minute to reconnect. Until then all nodes look lost and are tainted. Real kubelets
			// reconnect sooner, and this test measures the scheduler.
			for _, name := range []string{"kwok", "kube-controller-manager"} {
				other := controlPlane.Process(name)
				s.Must(other.Kill())
				_, err := controlPlane.StartAgain(other)
				s.Must(err)
			}

			s.Eventually(manyPods, func() error {
				if bound, err := s.bound(); err != nil || bound < placeable {
					return fmt.Errorf("%d of %d pods are bound, %v", bound, placeable, err)
				}
				return nil
			})
			all := time.Now()
			lease, err := client.CoordinationV1().Leases("kube-system").Get(s.Ctx, "spot-aware-scheduler", metav1.GetOptions{})
			s.Must(err)
			t.Logf("outage of %s with %d of 1,000 pods bound; the scheduler was restarted %d times; the lease was acquired %.1f s after the return, "+
				"and the %d pods that fit were bound %.1f s after it",
				returned.Sub(began).Round(time.Second), left, restarts(), lease.Spec.AcquireTime.Sub(returned).Seconds(), placeable, all.Sub(returned).Seconds())
			s.AddNodes(allOnDemand[5:]...)
			s.Eventually(manyPods, s.haveSplits(want))
			if moved := seen.onTwoNodes(); len(moved) > 0 {
				t.Errorf("pods on two nodes: %v", moved)
			}
			s.requireNoOverbooking()
		})
	}
}

// waiting returns the number of waiting pods.
func waiting(splits map[string]split) int {
	n := 0
	for _, at := range splits {
		n += at.Waiting
	}
	return n
}

func resume(_ *scenario, p *lab.Process) error { return p.Resume() }

func (s *scenario) startAPIServer(*lab.Process) error {
	start, err := live.StartAPIServerAgain(s.Ctx, controlPlane, client)
	s.Starts = append(s.Starts, start)
	return err
}

// ownControlPlane replaces the shared control plane by one that this test may break.
func ownControlPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	own, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sharedPlane, sharedClient := controlPlane, client
	t.Cleanup(func() {
		controlPlane, client = sharedPlane, sharedClient
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	controlPlane = own
	if client, err = kubernetes.NewForConfig(own.Config()); err != nil {
		t.Fatal(err)
	}
}

// restartOnExit restarts the scenario's scheduler whenever it exits, until the test ends. Like a
// kubelet, it restarts the scheduler at once the first time, and after 10 s later on. The result
// returns the number of restarts so far.
func (s *scenario) restartOnExit() (restarts func() int) {
	var count atomic.Int32
	ctx, cancel := context.WithCancel(s.Ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause := time.Duration(0); ; pause = 10 * time.Second {
			select {
			case <-s.Scheduler.Done():
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			again, err := controlPlane.StartAgain(s.Scheduler)
			if err != nil {
				s.Error(err)
				return
			}
			s.Scheduler = again
			count.Add(1)
		}
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
	})
	return func() int { return int(count.Load()) }
}
