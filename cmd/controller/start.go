package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/costs"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/nodepools"
)

// name is the name of the lock and of the event reporter.
const name = leader.Controller

// shutdownTimeout is how long a stopping replica waits for its requests before it releases its
// Lease.
const shutdownTimeout = 10 * time.Second

// errStaleLease is why a leader does not send a request.
var errStaleLease = errors.New("lease not renewed in time: another controller may lead")

// start runs the controller until ctx is done, the Lease is lost, or a part fails to start.
func start(ctx context.Context, kubeconfig string, setup *setup) error {
	config, err := app.Connect(kubeconfig)
	if err != nil {
		return err
	}
	// The limits apply to each client separately: informers, events and leader election never wait
	// for the client that moves pods. Late events do no harm, so in a mass reclaim moves use the
	// larger part of the API server's capacity.
	config.QPS, config.Burst = eventsPerSecond, eventBurst
	registerMetrics()
	// A dry run only reads, so it can run beside another installation too.
	if setup.failsafe || !setup.DryRun {
		if err := leader.CheckInstallation(ctx, config, name); err != nil {
			return err
		}
	}
	options := app.ManagerOptions(setup.Health.BindAddress, setup.Metrics.BindAddress, shutdownTimeout)
	// A dry run does not lead. It writes nothing, not even the Lease, and can run beside an active
	// controller.
	mayWrite := func() error { return loop.ErrDryRun }
	if setup.failsafe {
		return startFailsafe(ctx, config, setup, options)
	}
	if !setup.DryRun {
		setup.Memory = &leader.Memory{}
		if mayWrite, err = elect(config, setup.LeaderElection.LeaseDuration.Duration, &options, setup.Memory); err != nil {
			return err
		}
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	var recorder events.EventRecorder = discardRecorder{}
	if !setup.DryRun {
		recorder = mgr.GetEventRecorder(name)
	}
	if err := add(mgr, config, setup, mayWrite, recorder); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// elect makes the manager lead only with the Lease. mayWrite returns an error if the Lease is too
// old to send a request. A leader that was frozen may not know yet that another replica leads. Its
// planned and queued requests are not sent then. memory is connected to the Lease.
func elect(config *rest.Config, duration time.Duration, options *manager.Options,
	memory *leader.Memory) (mayWrite func() error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	lock, err := app.Elect(config, name, host+"_"+string(uuid.NewUUID()), duration, options)
	if err != nil {
		return nil, err
	}
	lock.Remember(memory)
	return func() error {
		if !lock.RenewedWithin(leader.RenewDeadline(duration)) {
			return errStaleLease
		}
		return nil
	}, nil
}

func add(mgr manager.Manager, config *rest.Config, setup *setup, mayWrite func() error, recorder events.EventRecorder) error {
	readers, err := newReaders(config, setup.RequestsPerSecond)
	if err != nil {
		return fmt.Errorf("creating the clients that read: %w", err)
	}
	writer, may, err := newMover(config, setup, readers, mayWrite)
	if err != nil {
		return fmt.Errorf("creating the client that writes: %w", err)
	}
	nodeOwners := round.NewNodeOwners(readers.metadata)
	caches, err := newCaches(readers.kubernetes)
	if err != nil {
		return fmt.Errorf("creating the caches: %w", err)
	}
	planner, err := round.NewPlanner(setup.Config, caches.factory, round.Clients{
		Writer: writer, RequestTimeout: requestTimeout, Live: readers.live, Recorder: recorder, NodeOwners: nodeOwners,
		Gate: may.gate, Switches: may.switches,
	})
	if err != nil {
		return fmt.Errorf("connecting the planners to the caches: %w", err)
	}
	nodes := caches.factory.Core().V1().Nodes()
	legacyregistry.CustomMustRegister(costs.NewCollector(nodes.Lister(), caches.synced, setup.prices, planner.CapacityType))
	rounds := loop.New(planner.Plan, caches.synced, setup.DryRun, int(setup.Concurrency))
	for _, informer := range planner.Informers() {
		if err := rounds.Watch(informer); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	leading := manager.RunnableFunc(func(ctx context.Context) error {
		// The Lease is released after all requests sent under it have been answered.
		defer planner.Wait()
		return rounds.Start(ctx)
	})
	nodePools := standby{func(ctx context.Context) error {
		nodepools.Watch(ctx, readers.dynamic, &planner.Provisioning.Pools)
		return nil
	}}
	runnables := []manager.Runnable{standby{caches.start}, standby{may.switches.Start}, standby{nodeOwners.Start}, nodePools, leading}
	besideRounds, err := newBesideRounds(config, setup, readers, caches, planner, may, mgr.Elected(), recorder)
	if err != nil {
		return err
	}
	for _, r := range append(runnables, besideRounds...) {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("adding to the manager: %w", err)
		}
	}
	return errors.Join(addWebhook(mgr, config, setup),
		mgr.AddReadyzCheck("caches", app.ReadyWhen(caches.full)),
		mgr.AddReadyzCheck("switches", func(*http.Request) error { return may.switches.Unread() }),
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddHealthzCheck("loop", rounds.CheckHealth),
	)
}

// discardRecorder drops all events.
type discardRecorder struct{}

func (discardRecorder) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}
