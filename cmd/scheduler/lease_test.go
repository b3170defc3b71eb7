package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// lock returns err for every request, after a delay.
type lock struct {
	resourcelock.Interface
	err   error
	takes time.Duration
}

func (l *lock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.takes)
	return l.err
}

func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.takes)
	return l.err
}

func TestLeaseMustBeFresh(t *testing.T) {
	const deadline, lasts = 10 * time.Second, 15 * time.Second
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	for name, test := range map[string]struct {
		// lead simulates the calls of the leader election before the scheduler requests a pod.
		lead func(*lock, resourcelock.Interface) error
		want bool
	}{
		"created":        {func(_ *lock, l resourcelock.Interface) error { return l.Create(t.Context(), mine) }, true},
		"taken":          {func(_ *lock, l resourcelock.Interface) error { return l.Update(t.Context(), mine) }, true},
		"never acquired": {func(*lock, resourcelock.Interface) error { return nil }, false},
		"creation failed": {func(s *lock, l resourcelock.Interface) error {
			s.err = errors.New("conflict")
			return l.Create(t.Context(), mine)
		}, false},
		"update failed": {func(s *lock, l resourcelock.Interface) error {
			s.err = errors.New("conflict")
			return l.Update(t.Context(), mine)
		}, false},
		"released": {func(_ *lock, l resourcelock.Interface) error {
			return l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
		}, false},
		"acquired long ago": {func(_ *lock, l resourcelock.Interface) error {
			defer time.Sleep(deadline)
			return l.Update(t.Context(), mine)
		}, false},
		"acquired recently": {func(_ *lock, l resourcelock.Interface) error {
			defer time.Sleep(deadline - 1)
			return l.Update(t.Context(), mine)
		}, true},
		// Other schedulers use the time that the leader wrote at the start of its request.
		"acquired slowly": {func(s *lock, l resourcelock.Interface) error { s.takes = deadline; return l.Update(t.Context(), mine) }, false},
		"created slowly":  {func(s *lock, l resourcelock.Interface) error { s.takes = deadline; return l.Create(t.Context(), mine) }, false},
		"renewed after a while": {func(s *lock, l resourcelock.Interface) error {
			err := l.Update(t.Context(), mine)
			time.Sleep(lasts - 1)
			return errors.Join(err, l.Update(t.Context(), mine))
		}, true},
		"lost after a while": {func(s *lock, l resourcelock.Interface) error {
			err := l.Update(t.Context(), mine)
			time.Sleep(deadline)
			s.err = errors.New("the API server is unavailable")
			return errors.Join(err, l.Update(t.Context(), mine))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				server := &lock{}
				config := &leaderelection.LeaderElectionConfig{Lock: server, RenewDeadline: deadline, LeaseDuration: lasts}
				sched := &scheduler.Scheduler{NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) { return &framework.QueuedPodInfo{}, nil }}
				guardLease(ctx, config, sched, &leader.Memory{})
				if err := test.lead(server, config.Lock); (err != nil) != (server.err != nil) {
					t.Fatalf("the lock returned %v instead of %v", err, server.err)
				}
				var pod *framework.QueuedPodInfo
				returned := make(chan struct{})
				go func() {
					defer close(returned)
					pod, _ = sched.NextPod(klog.Background())
				}()
				synctest.Wait()
				select {
				case <-returned:
					if !test.want || pod == nil {
						t.Errorf("NextPod returned a pod: %t", pod != nil)
					}
				default:
					if test.want {
						t.Error("NextPod returned no pod")
					}
				}
				// A process that ends does not wait for its lease.
				cancel()
				<-returned
				if !test.want && pod != nil {
					t.Error("NextPod returned a pod although the process ends")
				}
			})
		})
	}
}

// A leader that renews its lease again continues with the pod that waited.
func TestLeaseIsRenewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := leader.NewLock(&lock{}, 2*time.Minute)
		popped := 0
		next := afterFreshLease(t.Context(), lease, 10*time.Second, func(klog.Logger) (*framework.QueuedPodInfo, error) {
			popped++
			return &framework.QueuedPodInfo{Attempts: popped}, nil
		})
		time.AfterFunc(time.Minute, func() {
			_ = lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
		})
		began := time.Now()
		if pod, err := next(klog.Background()); err != nil || pod == nil || pod.Attempts != 1 {
			t.Errorf("NextPod returned %+v, %v", pod, err)
		}
		if waited := time.Since(began); waited < time.Minute || waited > time.Minute+leader.PollEvery {
			t.Errorf("it waited %s", waited)
		}
	})
}

func TestLeaseWithoutElection(t *testing.T) {
	sched := &scheduler.Scheduler{NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) { return &framework.QueuedPodInfo{}, nil }}
	guardLease(t.Context(), nil, sched, &leader.Memory{})
	if pod, err := sched.NextPod(klog.Background()); pod == nil || err != nil {
		t.Errorf("NextPod returned %v, %v", pod, err)
	}
}
