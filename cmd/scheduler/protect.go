package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/withdrawal"
)

// budgetsPerSecond is how many PodDisruptionBudgets are deleted in a second, on average and at once. It is slow, so that bindings come first.
const budgetsPerSecond = 10

// withdrawBudgets has the scheduler, while fresh says that it leads, delete the PodDisruptionBudgets of a controller that does not run any
// more. It is to be called before sched runs, and once; ctx ends it.
func withdrawBudgets(ctx context.Context, cc schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, fresh func() bool) error {
	limited := rest.CopyConfig(cc.KubeConfig)
	limited.QPS, limited.Burst = budgetsPerSecond, budgetsPerSecond
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return fmt.Errorf("making the client that deletes PodDisruptionBudgets: %w", err)
	}
	anyProfile := sched.Profiles[slices.Min(slices.Collect(maps.Keys(sched.Profiles)))]
	go withdrawal.NewWithdrawer(cc.InformerFactory, client, anyProfile.EventRecorder(), clock.RealClock{}, fresh).Run(ctx)
	return nil
}
