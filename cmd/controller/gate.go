package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/gating"
)

// gatesPerSecond is how many pods are let go in a second, on average and at once: more than a scheduler places.
const gatesPerSecond = 1000

// newGater returns what lets gated pods go; nil if the configuration does not want it, or in a dry run. It has a client of its own, so that no
// new pod waits for those that are moved. The caches must not have been started.
func newGater(
	config *rest.Config, setup *setup, caches *caches, parts *parts, may func() error, recorder events.EventRecorder,
) (manager.Runnable, error) {
	if !setup.Gating || setup.DryRun {
		return nil, nil
	}
	client, err := newWriter(config, gatesPerSecond, may)
	if err != nil {
		return nil, fmt.Errorf("making the client that removes gates: %w", err)
	}
	gater, err := gating.New(caches.factory, client, recorder, clock.RealClock{}, parts.wishes, parts.installed, gating.Settings{
		Profile: setup.profile, Policy: setup.policy, Labels: setup.gatingLabels, NodeStartup: setup.NodeStartup,
	})
	if err != nil {
		return nil, fmt.Errorf("joining what removes gates to the caches: %w", err)
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
