package main

import (
	"context"
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
	// renewed is when the last renewal that succeeded was begun; nil before the first.
	renewed atomic.Pointer[time.Time]
}

// guardLease lets sched decide nothing while its lease is older than the renew deadline, which is shorter than the lease lasts. It is to
// be called before sched runs, and once; ctx ends the wait. Without leader election, which is a nil config, there is nothing to guard.
func guardLease(ctx context.Context, config *leaderelection.LeaderElectionConfig, sched *scheduler.Scheduler) {
	if config == nil {
		return
	}
	lease := &freshLease{Interface: config.Lock}
	config.Lock = lease
	sched.NextPod = lease.after(ctx, config.RenewDeadline, sched.NextPod)
}

// after returns next with a wait for a fresh lease after it, and so right before the scheduling cycle of the pod.
func (l *freshLease) after(ctx context.Context, atMost time.Duration, next nextPod) nextPod {
	fresh := func() bool {
		renewed := l.renewed.Load()
		return renewed != nil && time.Since(*renewed) < atMost
	}
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if !fresh() {
			logger.Info("Scheduling waits until the lease is renewed", "renewDeadline", atMost)
		}
		for !fresh() {
			if sleep(ctx, pollEvery) != nil {
				return nil, nil // the process ends
			}
		}
		return pod, err
	}
}

// Create takes a lease that does not exist.
func (l *freshLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := l.Interface.Create(ctx, record)
	if err == nil {
		l.renewed.Store(&began)
	}
	return err
}

// Update takes the lease, renews it, or gives it back.
func (l *freshLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := l.Interface.Update(ctx, record)
	if err == nil && record.HolderIdentity != "" {
		l.renewed.Store(&began)
	}
	return err
}
