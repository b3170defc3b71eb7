package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
)

// gatesPerSecond limits the removals of expired gates, as average rate and as burst. It is low
// because bindings have priority.
const gatesPerSecond = 50

// removeExpiredGates makes the scheduler remove capacity gates that spot-controller has not removed
// in time, while fresh reports that it leads. It must be called once, before sched runs. It ends
// with ctx.
func removeExpiredGates(ctx context.Context, cc schedulerserverconfig.CompletedConfig, sched *scheduler.Scheduler, fresh func() bool) error {
	timeouts := map[string]time.Duration{}
	for _, profile := range cc.ComponentConfig.Profiles {
		args := &config.ReplicaSafetyArgs{} // defaults of a profile without args
		args.SetDefaults()
		for _, plugin := range profile.PluginConfig {
			if set, ok := plugin.Args.(*config.ReplicaSafetyArgs); ok {
				args = set
			}
		}
		policy, _, err := args.Policy()
		if err != nil {
			return err
		}
		timeouts[profile.SchedulerName] = policy.GateTimeout
	}
	profiles := map[string]failsafe.Profile{}
	for name, profile := range sched.Profiles {
		profiles[name] = failsafe.Profile{Timeout: timeouts[name], Recorder: profile.EventRecorder()}
	}
	client, err := limitedClient(cc.KubeConfig, gatesPerSecond)
	if err != nil {
		return fmt.Errorf("creating the client that removes expired gates: %w", err)
	}
	failsafe.RegisterMetrics()
	remover, err := failsafe.NewGateRemover(cc.InformerFactory, client, clock.RealClock{}, profiles, fresh)
	if err != nil {
		return fmt.Errorf("watching for expired gates: %w", err)
	}
	go remover.Run(ctx)
	return nil
}

// limitedClient returns a client with a rate limit of its own, as average rate and as burst.
func limitedClient(config *rest.Config, perSecond int) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = float32(perSecond), perSecond
	return kubernetes.NewForConfig(config)
}
