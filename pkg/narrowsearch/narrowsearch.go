// Package narrowsearch makes a scheduler search few nodes before it searches all.
// docs/design/throughput.md explains why.
package narrowsearch

import (
	"context"
	"errors"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
)

// Enable makes sched first search few nodes, which ReplicaSafety chooses. If the pod fits
// on no such node, sched searches all nodes as usual. Both searches are one scheduling attempt: its
// result, including preemption, depends only on the last search. percentage is
// percentageOfNodesToScore of the configuration, which profiles may override. If it is set, the
// search is not narrow.
func Enable(sched *scheduler.Scheduler, percentage *int32) {
	schedule := sched.SchedulePod
	sched.SchedulePod = func(
		ctx context.Context, profile framework.Framework, cycle fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		if ptr.Deref(profile.PercentageOfNodesToScore(), ptr.Deref(percentage, 0)) == 0 {
			placement.Narrow(cycle)
		}
		result, err := schedule(ctx, profile, cycle, pod)
		// If ReplicaSafety is not in the diagnosis, another plugin refused the pod before any node
		// was searched.
		unfit, ok := errors.AsType[*framework.FitError](err)
		if ok && unfit.Diagnosis.UnschedulablePlugins.Has(replicasafety.Name) && placement.Widen(cycle) {
			return schedule(ctx, profile, cycle, pod)
		}
		return result, err
	}
}
