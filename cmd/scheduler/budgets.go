package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
)

// withdrawalsPerSecond limits the deletions of PodDisruptionBudgets and the restorations of pods,
// as average rate and as burst. It is low because bindings have priority.
const withdrawalsPerSecond = 10

// withdrawAbandoned makes the scheduler delete the PodDisruptionBudgets and restore the released
// pods of a controller that no longer runs, while fresh reports that it leads. It must be called
// once, before sched runs. It ends with ctx.
func withdrawAbandoned(ctx context.Context, cc schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, fresh func() bool) error {
	client, err := limitedClient(cc.KubeConfig, withdrawalsPerSecond)
	if err != nil {
		return fmt.Errorf("creating the client that withdraws what a controller left: %w", err)
	}
	anyProfile := sched.Profiles[slices.Min(slices.Collect(maps.Keys(sched.Profiles)))]
	go failsafe.NewWithdrawer(cc.InformerFactory, client, anyProfile.EventRecorder(), clock.RealClock{}, fresh).Run(ctx)
	return nil
}
