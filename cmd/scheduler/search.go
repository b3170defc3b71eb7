package main

import (
	"context"
	"errors"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// searchNarrowly has sched look at few nodes first, which the count of siblings suggests, and at all of them, as it would without, when
// none of the few takes the pod. Both searches are one scheduling attempt: what comes of it, preemption included, depends on the last
// one alone. percentage is the configuration's percentageOfNodesToScore, which profiles may override; nil or 0 if not set.
func searchNarrowly(sched *scheduler.Scheduler, percentage *int32) {
	schedule := sched.SchedulePod
	sched.SchedulePod = func(ctx context.Context, profile framework.Framework, cycle fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
		placement.Narrow(cycle, ptr.Deref(profile.PercentageOfNodesToScore(), ptr.Deref(percentage, 0)))
		result, err := schedule(ctx, profile, cycle, pod)
		if unfit := (*framework.FitError)(nil); errors.As(err, &unfit) && placement.Widen(cycle) {
			return schedule(ctx, profile, cycle, pod)
		}
		return result, err
	}
}
