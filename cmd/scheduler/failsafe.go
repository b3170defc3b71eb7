package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
)

// withdrawalsPerSecond limits the requests of withdrawAbandoned, as average rate and as burst. It
// is low because bindings have priority.
const withdrawalsPerSecond = 50

// withdrawAbandoned makes the scheduler remove the capacity gates, delete the PodDisruptionBudgets
// and restore the released pods of a controller that does not run, while fresh reports that it
// leads. It must be called once, before sched runs. It ends with ctx.
func withdrawAbandoned(ctx context.Context, cc schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, fresh func() bool) error {
	gateTimeouts := map[string]time.Duration{}
	for _, profile := range cc.ComponentConfig.Profiles {
		args := &config.ReplicaSafetyArgs{} // defaults of a profile without args
		for _, plugin := range profile.PluginConfig {
			if set, ok := plugin.Args.(*config.ReplicaSafetyArgs); ok {
				args = set
			}
		}
		policy, _, err := args.Policy()
		if err != nil {
			return err
		}
		gateTimeouts[profile.SchedulerName] = policy.GateTimeout
	}
	limited := rest.CopyConfig(cc.KubeConfig)
	limited.QPS, limited.Burst = withdrawalsPerSecond, withdrawalsPerSecond
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return fmt.Errorf("creating the client that withdraws what a controller left: %w", err)
	}
	failsafe.RegisterMetrics()
	anyProfile := sched.Profiles[slices.Min(slices.Collect(maps.Keys(sched.Profiles)))]
	go failsafe.NewWithdrawer(cc.InformerFactory, client, anyProfile.EventRecorder(), clock.RealClock{}, gateTimeouts, fresh).Run(ctx)
	return nil
}
