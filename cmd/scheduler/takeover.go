package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/takeover"
)

var takeoverDuration = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem: "spot_aware_scheduler",
	Name:      "takeover_duration_seconds",
	Help: "Time from the start of this instance's leadership to its first decision, in which it waits for the bindings of its " +
		"predecessors. 0 in one that does not lead, and as long as it waits.",
	StabilityLevel: metrics.ALPHA,
})

// guardTakeover lets sched decide nothing until its cache holds every binding that was made before it began to lead. It is to be called
// before sched runs, and once; ctx ends the wait.
func guardTakeover(ctx context.Context, config *rest.Config, sched *scheduler.Scheduler) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for takeovers: %w", err)
	}
	legacyregistry.MustRegister(takeoverDuration)
	t := takeover.Takeover{
		List: func(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
			return takeover.ListBound(ctx, client.Resource(v1.SchemeGroupVersion.WithResource("pods")))
		},
		Holds: func(uid types.UID) bool {
			pod, err := sched.Cache.GetPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
			return err == nil && pod.Spec.NodeName != ""
		},
	}
	sched.NextPod = before(ctx, t, sched.NextPod)
	return nil
}

// nextPod is the type of Scheduler.NextPod: it blocks until there is a pod to schedule, and returns nil when there will be none any more.
type nextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// before returns next with the takeover before its first call. The scheduler calls it at the beginning of every scheduling cycle, one
// after the other, and for the first time when it leads; a process leads once at most.
func before(ctx context.Context, t takeover.Takeover, next nextPod) nextPod {
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
