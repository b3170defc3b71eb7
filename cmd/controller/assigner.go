package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
)

// gatesPerSecond is the rate and the burst of gate removals. It exceeds the rate at which a
// scheduler places pods.
const gatesPerSecond = 1000

// newAssigner returns the runnable that assigns capacity types to gated pods; nil if gating is
// disabled, or in a dry run. It has its own client, so that new pods do not wait for moves. It must
// be called before the caches are started.
func newAssigner(
	config *rest.Config, setup *setup, caches *caches, planner *round.Planner, mayWrite func() error, recorder events.EventRecorder,
) (manager.Runnable, error) {
	if !setup.Gating.Enabled || setup.DryRun {
		return nil, nil
	}
	client, err := newWriter(config, gatesPerSecond, mayWrite)
	if err != nil {
		return nil, fmt.Errorf("creating the client that removes gates: %w", err)
	}
	assigner, err := gating.New(caches.factory, client, recorder, clock.RealClock{}, planner.AdmissionPolicy,
		gating.Settings{Profile: setup.Profile, Policy: setup.Policy, Labels: setup.GatingLabels, NodeStartup: setup.Gating.NodeStartup.Duration,
			Provisioning: planner.Provisioning})
	if err != nil {
		return nil, fmt.Errorf("connecting the gates to the caches: %w", err)
	}
	return caches.whenSynced(func(ctx context.Context) error {
		assigner.Run(ctx)
		return nil
	}), nil
}
