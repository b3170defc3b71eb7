package main

import (
	"context"
	"errors"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
)

// searchNarrowly has sched look at few nodes first, which ReplicaSafety chooses, and at all of them, as it would without, when none of
// the few takes the pod. Both searches are one scheduling attempt: what comes of it, preemption included, depends on the last one alone.
// percentage is the configuration's percentageOfNodesToScore, which profiles may override: who sets it gets what it says.
func searchNarrowly(sched *scheduler.Scheduler, percentage *int32) {
	schedule := sched.SchedulePod
	sched.SchedulePod = func(
		ctx context.Context, profile framework.Framework, cycle fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		if ptr.Deref(profile.PercentageOfNodesToScore(), ptr.Deref(percentage, 0)) == 0 {
			placement.Narrow(cycle)
		}
		result, err := schedule(ctx, profile, cycle, pod)
		// Without ReplicaSafety among them, another plugin has refused the pod before any node was looked at.
		leftOut := func(unfit *framework.FitError) bool {
			return unfit.Diagnosis.UnschedulablePlugins.Has(replicasafety.Name)
		}
		if unfit := (*framework.FitError)(nil); errors.As(err, &unfit) && leftOut(unfit) && placement.Widen(cycle) {
			return schedule(ctx, profile, cycle, pod)
		}
		return result, err
	}
}
