package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// freshLease is the lock of the leader election, and knows when the leader last renewed it. A leader that cannot renew its lease goes on
// for longer than the lease lasts: client-go tries for renewDeadline, and for as long again to give the lease back, before it
// stops the scheduler. One that was frozen does not know at first that it lost it.
type freshLease struct {
	resourcelock.Interface
	// lasts is for how long nobody else takes it after a renewal: whole seconds, as they are written into the lease.
	lasts time.Duration
	// renewed is when the last renewal that succeeded was begun; nil before the first.
	renewed atomic.Pointer[time.Time]
}

// guardLease lets sched decide nothing while its lease is older than the renew deadline, which is shorter than the lease lasts, and lets
// one process lead for one term only. It returns what says whether the lease is that fresh now. It is to be called before sched runs, and
// once; ctx ends the wait. Without leader election, which is a nil config, there is nothing to guard.
func guardLease(ctx context.Context, config *leaderelection.LeaderElectionConfig, sched *scheduler.Scheduler) (fresh func() bool) {
	if config == nil {
		return func() bool { return true }
	}
	lease := &freshLease{Interface: config.Lock, lasts: config.LeaseDuration.Truncate(time.Second)}
	config.Lock = lease
	atMost := min(config.RenewDeadline, lease.lasts)
	sched.NextPod = lease.after(ctx, atMost, sched.NextPod)
	return func() bool { return lease.fresh(atMost) }
}

// fresh reports whether the lease was renewed less than atMost ago.
func (l *freshLease) fresh(atMost time.Duration) bool {
	renewed := l.renewed.Load()
	return renewed != nil && age(*renewed) < atMost
}

// after returns next with a wait for a fresh lease after it, and so right before the scheduling cycle of the pod.
func (l *freshLease) after(ctx context.Context, atMost time.Duration, next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if !l.fresh(atMost) {
			logger.Info("Scheduling waits until the lease is renewed", "renewDeadline", atMost)
		}
		for !l.fresh(atMost) {
			if sleep(ctx, pollEvery) != nil {
				return nil, nil // the process ends
			}
		}
		return pod, err
	}
}

// Create takes a lease that does not exist.
func (l *freshLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update takes the lease, renews it, or gives it back.
func (l *freshLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// write writes the lease. It refuses to when the one that the process had has run out: others may have led since, and what they did is
// not in the cache. client-go would go on with the old term, for which guardTakeover has been passed already, or give back a
// lease that is another's by now. So it cannot renew, and the process ends as one that lost its lease.
func (l *freshLease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if last := l.renewed.Load(); last != nil && age(*last) >= l.lasts {
		return fmt.Errorf("the lease was last renewed %s ago and lasts %s: others may have led since, so this process ends",
			age(*last).Round(time.Second), l.lasts)
	}
	err := write()
	if err == nil && record.HolderIdentity != "" {
		l.renewed.Store(&began)
	}
	return err
}

// age is for how long t has passed, by the clock that says more: the monotonic one may stand still while a machine is suspended, and the
// other one may be set back.
func age(t time.Time) time.Duration { return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0))) }
