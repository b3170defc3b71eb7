package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/disruptions"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
)

// The rate and the burst of requests beside the rounds. gatesPerSecond exceeds the rate at which a
// scheduler places pods. A Job needs at most as many counts as its disruption limit.
const gatesPerSecond, countsPerSecond = 1000, 100

// newBesideRounds returns the runnables of a leader that act on single pods beside the rounds. Each
// has its own client, so that new pods and counts do not wait for moves: the Job controller creates
// the next pod about a second after a disruption, and the scheduler needs the count by then. It
// must be called before the caches are started. A dry run only warns if pods wait for it.
func newBesideRounds(
	config *rest.Config, setup *setup, readers readers, caches *caches, planner *round.Planner, may permission, elected <-chan struct{},
	recorder events.EventRecorder,
) ([]manager.Runnable, error) {
	switch {
	case setup.DryRun && setup.Gating.Enabled:
		return []manager.Runnable{manager.RunnableFunc(func(ctx context.Context) error {
			gating.WarnDryRun(ctx, readers.kubernetes, setup.Policy.GateTimeout)
			return nil
		})}, nil
	case setup.DryRun:
		return nil, nil
	}
	counts, err := newWriter(config, countsPerSecond, may)
	gates, failed := newWriter(config, gatesPerSecond, may)
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("creating the clients that count disruptions and remove gates: %w", err)
	}
	counter, err := disruptions.New(caches.factory, caches.failedPods, counts, planner.Scope, setup.Policy)
	if err != nil {
		return nil, fmt.Errorf("connecting the counter of disruptions to the caches: %w", err)
	}
	runnables := []manager.Runnable{caches.whenSynced(counter.Run)}
	if !setup.Gating.Enabled {
		return runnables, nil
	}
	leads := func() bool { return closed(elected) }
	withdrawer, err := newWithdrawer(config, setup, caches, leads, may.gate, recorder)
	if err != nil {
		return nil, err
	}
	runnables = append(runnables, withdrawer)
	assigner, err := gating.New(caches.factory, gates, recorder, clock.RealClock{}, planner.AdmissionPolicy, gating.Settings{
		Scope: planner.Scope, Policy: setup.Policy, Labels: setup.GatingLabels, NodeStartup: setup.Gating.NodeStartup.Duration,
		Provisioning: planner.Provisioning, Paused: may.switches.Paused, EvictableOwners: setup.Migration.EvictableOwners,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting the gates to the caches: %w", err)
	}
	assigner.RegisterGauges(setup.Signals)
	return append(runnables, caches.whenSynced(func(ctx context.Context) error {
		assigner.Run(ctx)
		return nil
	})), nil
}

// publicationsPerSecond is the rate and the burst of the requests that publish the certificate of
// the webhook.
const publicationsPerSecond = 10

// addWebhook adds the webhook that gates new pods if it is configured. The replicas that do not
// lead serve it too, so they may write its configuration.
func addWebhook(mgr manager.Manager, config *rest.Config, setup *setup) error {
	if !setup.Gating.ServesWebhook() || setup.DryRun {
		return nil
	}
	client, err := newWriter(config, publicationsPerSecond, permission{mayWrite: func() error { return nil }})
	if err != nil {
		return fmt.Errorf("creating the client that publishes the certificate of the webhook: %w", err)
	}
	if err := gating.AddWebhook(mgr, client, setup.Gating.Webhook.BindAddress, setup.Policy); err != nil {
		return fmt.Errorf("adding the webhook: %w", err)
	}
	return nil
}

// standby is a runnable of the replicas that do not lead.
type standby struct{ manager.RunnableFunc }

func (standby) NeedLeaderElection() bool { return false }

// withdrawalsPerSecond is the rate and the burst of the requests of a standby.
const withdrawalsPerSecond = 50

// newWithdrawer returns the runnable that withdraws what no controller withdraws in time, while
// this replica does not lead. A scheduler of this project does the same.
func newWithdrawer(
	config *rest.Config, setup *setup, caches *caches, leads func() bool, gate *safety.Gate, recorder events.EventRecorder,
) (manager.Runnable, error) {
	config = writing(config, withdrawalsPerSecond, permission{gate: gate, mayWrite: func() error {
		if leads() {
			return errors.New("this replica leads now")
		}
		return nil
	}})
	config.Wrap(withCause(safety.Obsolete))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client that withdraws what a controller left: %w", err)
	}
	withdrawer := failsafe.NewWithdrawer(caches.factory, client, recorder, clock.RealClock{},
		map[string]time.Duration{setup.Profile: setup.Policy.GateTimeout}, func() bool { return !leads() })
	return standby{caches.whenSynced(func(ctx context.Context) error {
		withdrawer.Run(ctx)
		return nil
	})}, nil
}

// startFailsafe withdraws what no controller withdraws in time, until ctx is done. It works while
// no controller runs. It ignores dryRun: the pods that wait for a dry run would wait for ever.
func startFailsafe(ctx context.Context, config *rest.Config, setup *setup, options manager.Options) error {
	mgr, err := manager.New(config, options)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	readers, err := newReaders(config, setup.RequestsPerSecond)
	if err != nil {
		return fmt.Errorf("creating the clients that read: %w", err)
	}
	caches, err := newCaches(readers.kubernetes)
	if err != nil {
		return fmt.Errorf("creating the caches: %w", err)
	}
	withdrawer, err := newWithdrawer(config, setup, caches, func() bool { return false }, nil, mgr.GetEventRecorder(name))
	if err != nil {
		return err
	}
	err = errors.Join(mgr.Add(standby{caches.start}), mgr.Add(withdrawer), mgr.AddReadyzCheck("caches", app.ReadyWhen(caches.full)),
		mgr.AddHealthzCheck("ping", healthz.Ping))
	if err != nil {
		return fmt.Errorf("adding to the manager: %w", err)
	}
	return mgr.Start(ctx)
}
