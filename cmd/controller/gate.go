package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
)

// gatesPerSecond is the rate and the burst of gate removals. It exceeds the rate at which a
// scheduler places pods.
const gatesPerSecond = 1000

// newGater returns the runnable that removes scheduling gates; nil if gating is disabled, or in a
// dry run. It has its own client, so that new pods do not wait for moves. Call it before the caches
// are started.
func newGater(
	config *rest.Config, setup *setup, caches *caches, parts *parts, may func() error, recorder events.EventRecorder,
) (manager.Runnable, error) {
	if !setup.Gating || setup.DryRun {
		return nil, nil
	}
	client, err := newWriter(config, gatesPerSecond, may)
	if err != nil {
		return nil, fmt.Errorf("creating the client that removes gates: %w", err)
	}
	gater, err := gating.New(caches.factory, client, recorder, clock.RealClock{}, parts.wishes, parts.installed, gating.Settings{
		Profile: setup.profile, Policy: setup.policy, Labels: setup.gatingLabels, NodeStartup: setup.NodeStartup,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting the gater to the caches: %w", err)
	}
	return manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-caches.full:
			gater.Run(ctx)
		case <-ctx.Done():
		}
		return nil
	}), nil
}
