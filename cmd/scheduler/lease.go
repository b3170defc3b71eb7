package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
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

var takeoverDuration = metrics.NewGauge("takeover_duration_seconds",
	"Time in seconds from the start of this instance's leadership to its first decision, while it waits for the bindings of its "+
		"predecessors. 0 if the instance does not lead or still waits.")

// guardTakeover stops the decisions of sched until its cache contains every binding of earlier
// leaders. It must be called once, before sched runs. ctx ends the wait.
func guardTakeover(ctx context.Context, config *rest.Config, sched *scheduler.Scheduler) error {
	t, err := leader.NewTakeover(config, func(uid types.UID) bool {
		pod, err := sched.Cache.GetPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		return err == nil && pod.Spec.NodeName != ""
	}, leader.BoundPods)
	if err != nil {
		return err
	}
	legacyregistry.MustRegister(takeoverDuration)
	sched.NextPod = afterTakeover(ctx, t, sched.NextPod)
	return nil
}

// nextPod is the type of Scheduler.NextPod. It blocks until there is a pod to schedule, and returns
// nil after the scheduling queue is closed.
type nextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// afterTakeover returns a function that runs the takeover before the first call of next. The
// scheduler calls it at the beginning of every scheduling cycle, sequentially, and only after it
// leads. A process leads at most once.
func afterTakeover(ctx context.Context, t leader.Takeover, next nextPod) nextPod {
	done := false
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if !done {
			took, err := t.Wait(klog.NewContext(ctx, logger))
			if err != nil {
				return nil, nil // the process ends
			}
			takeoverDuration.Set(took.Seconds())
			done = true
		}
		return next(logger)
	}
}
