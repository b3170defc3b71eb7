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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestOutage takes a part of the control plane away in the middle of placing 1,000 pods, and expects that scheduling resumes by itself:
// all placed, and no breach. A kube-scheduler that cannot renew its lease for 10 s ends; a kubelet starts it again, and so does this test.
func TestOutage(t *testing.T) {
	for _, test := range []struct {
		name      string
		component string
		away      time.Duration
		// leave takes the component away, back brings it back.
		leave func(*lab.Process) error
		back  func(*scenario, *lab.Process) error
	}{
		{"API server killed", "kube-apiserver", 20 * time.Second, (*lab.Process).Kill, (*scenario).startAPIServer}, // connections are refused
		{"API server paused", "kube-apiserver", 20 * time.Second, (*lab.Process).Pause, resume},
		{"etcd paused", "etcd", 10 * time.Second, (*lab.Process).Pause, resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			ownControlPlane(t)
			s := start(t, nil, unhurried)
			seen := s.record()
			restarts := s.keep()
			want := map[string]split{}
			for i := range 20 {
				name := fmt.Sprintf("large-%d", i)
				s.deploy(name, 50, annotated(minOnDemand, "30%"))
				want[name] = split{onDemand: 15, spot: 35}
			}
			// The controllers, too, take their time after an outage. Here it is the scheduler that is measured.
			s.eventually(time.Minute, func() error {
				if splits, err := s.splits(); err != nil || waiting(splits) != 1000 {
					return fmt.Errorf("%d of 1,000 pods are there, %v", waiting(splits), err)
				}
				return nil
			})
			// Most of the floors find no on-demand before the end, so that spot takes whatever is forgotten to be there already.
			allOnDemand := onDemand(20, 15)
			s.must(s.scheduler.Pause())
			s.addNodes(slices.Concat(allOnDemand[:5], spot(30, 30))...)
			s.must(s.scheduler.Resume())
			const placeable = 20*35 + 5*15
			s.eventually(time.Minute, seen.boundAtLeast(50))
			component := controlPlane.Process(test.component)
			s.must(test.leave(component))
			left, began := seen.bound(), time.Now()
			if left >= placeable {
				t.Errorf("away too late: %d pods were bound", left)
			}
			time.Sleep(test.away) // the length of the outage
			s.must(test.back(s, component))
			returned := time.Now()
			// The fake kubelets, and the controllers that watch their leases, can take over a minute to connect again. Until then all nodes
			// look lost and are tainted. Real kubelets do not wait for so long, and it is the scheduler that is measured.
			for _, name := range []string{"kwok", "kube-controller-manager"} {
				other := controlPlane.Process(name)
				s.must(other.Kill())
				_, err := controlPlane.StartAgain(other)
				s.must(err)
			}

			s.eventually(2*time.Minute, func() error {
				if bound, err := s.bound(); err != nil || bound < placeable {
					return fmt.Errorf("%d of %d pods are bound, %v", bound, placeable, err)
				}
				return nil
			})
			all := time.Now()
			lease, err := client.CoordinationV1().Leases("kube-system").Get(s.ctx, "spot-aware-scheduler", metav1.GetOptions{})
			s.must(err)
			t.Logf("away for %s with %d of 1,000 pods bound; the scheduler was started again %d times; the lease was taken %.1f s after the return, "+
				"and the %d pods that find room were bound %.1f s after it",
				returned.Sub(began).Round(time.Second), left, restarts(), lease.Spec.AcquireTime.Sub(returned).Seconds(), placeable, all.Sub(returned).Seconds())
			s.addNodes(allOnDemand[5:]...)
			s.eventually(2*time.Minute, s.are(want))
			if moved := seen.onTwoNodes(); len(moved) > 0 {
				t.Errorf("pods on two nodes: %v", moved)
			}
			s.overbooked()
		})
	}
}

// waiting adds up the pods that wait.
func waiting(splits map[string]split) int {
	n := 0
	for _, at := range splits {
		n += at.waiting
	}
	return n
}

func resume(_ *scenario, p *lab.Process) error { return p.Resume() }

func (s *scenario) startAPIServer(*lab.Process) error {
	start, err := live.StartAPIServerAgain(s.ctx, controlPlane, client)
	s.starts = append(s.starts, start)
	return err
}

// ownControlPlane gives this test a control plane that it may break, in the place of the one that the tests share.
func ownControlPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	own, err := lab.Start(ctx, lab.Options{Kubernetes: minor})
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

// keep starts the scenario's scheduler again whenever it ends, until the test ends: at once the first time and then after 10 seconds,
// like a kubelet. The result tells how often that was so far.
func (s *scenario) keep() (restarts func() int) {
	var count atomic.Int32
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause := time.Duration(0); ; pause = 10 * time.Second {
			select {
			case <-s.scheduler.Done():
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			again, err := controlPlane.StartAgain(s.scheduler)
			if err != nil {
				s.Error(err)
				return
			}
			s.scheduler = again
			count.Add(1)
		}
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
	})
	return func() int { return int(count.Load()) }
}
