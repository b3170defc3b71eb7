package main

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// guardLease stops the decisions of sched while its lease is older than the renew deadline, which
// is shorter than the lease duration. A process leads for at most one term. The function that
// guardLease returns reports whether the lease is fresh. It must be called once, before sched runs.
// ctx ends a wait. Without leader election config is nil, and guardLease has no effect.
func guardLease(ctx context.Context, config *leaderelection.LeaderElectionConfig, sched *scheduler.Scheduler,
	memory *leader.Memory) (fresh func() bool) {
	if config == nil {
		return func() bool { return true }
	}
	lock := leader.NewLock(config.Lock, config.LeaseDuration)
	lock.Remember(memory)
	config.Lock = lock
	sched.NextPod = afterFreshLease(ctx, lock, config.RenewDeadline, sched.NextPod)
	return func() bool { return lock.RenewedWithin(config.RenewDeadline) }
}

// afterFreshLease returns a function that calls next and then waits for a fresh lease, directly
// before the scheduling cycle of the pod.
func afterFreshLease(ctx context.Context, lock *leader.Lock, atMost time.Duration, next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if !lock.RenewedWithin(atMost) {
			logger.Info("Scheduling waits until the lease is renewed", "renewDeadline", atMost)
		}
		for !lock.RenewedWithin(atMost) {
			if leader.Sleep(ctx, leader.PollEvery) != nil {
				return nil, nil // the process ends
			}
		}
		return pod, err
	}
}
