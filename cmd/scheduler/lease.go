package main

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lease"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/takeover"
)

// guardLease lets sched decide nothing while its lease is older than the renew deadline, which is shorter than the lease lasts, and lets
// one process lead for one term only. It returns what says whether the lease is that fresh now. It is to be called before sched runs, and
// once; ctx ends the wait. Without leader election, which is a nil config, there is nothing to guard.
func guardLease(ctx context.Context, config *leaderelection.LeaderElectionConfig, sched *scheduler.Scheduler) (fresh func() bool) {
	if config == nil {
		return func() bool { return true }
	}
	lock := lease.NewLock(config.Lock, config.LeaseDuration)
	config.Lock = lock
	sched.NextPod = whenFresh(ctx, lock, config.RenewDeadline, sched.NextPod)
	return func() bool { return lock.Fresh(config.RenewDeadline) }
}

// rememberLabels has the lease remember for later leaders that nodes with a capacity label were seen. It is to be called after guardLease.
func rememberLabels(config *leaderelection.LeaderElectionConfig, labels *kube.LabelHistory) {
	if config == nil {
		return
	}
	if lock, ok := config.Lock.(*lease.Lock); ok {
		lock.Remember(lease.SawCapacityLabels, labels.Seen, labels.Remember)
	}
}

// whenFresh returns next with a wait for a fresh lease after it, and so right before the scheduling cycle of the pod.
func whenFresh(ctx context.Context, lock *lease.Lock, atMost time.Duration, next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if !lock.Fresh(atMost) {
			logger.Info("Scheduling waits until the lease is renewed", "renewDeadline", atMost)
		}
		for !lock.Fresh(atMost) {
			if takeover.Sleep(ctx, takeover.PollEvery) != nil {
				return nil, nil // the process ends
			}
		}
		return pod, err
	}
}
