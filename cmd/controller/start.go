package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// name is the name of the lock and of the event reporter.
const name = leader.Controller

// stopWithin is how long a stopping replica waits for its requests before it releases its Lease.
const stopWithin = 10 * time.Second

// errStaleLease is why a leader does not send a request.
var errStaleLease = errors.New("lease not renewed in time: another controller may lead")

// start runs the controller until ctx is done, the Lease is lost, or a part fails to start.
func start(ctx context.Context, kubeconfig string, setup *setup) error {
	config, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	registerMetrics()
	options := manager.Options{
		Logger:                  klog.Background(),
		HealthProbeBindAddress:  setup.HealthAddress,
		GracefulShutdownTimeout: ptr.To(stopWithin),
		Metrics: metricsserver.Options{
			BindAddress: setup.MetricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
	}
	// A dry run does not lead. It writes nothing, not even the Lease, and can run beside an active
	// controller.
	may := func() error { return loop.ErrDryRun }
	if !setup.DryRun {
		if may, err = elect(config, setup.LeaseDuration, &options); err != nil {
			return err
		}
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	var recorder events.EventRecorder = noEvents{}
	if !setup.DryRun {
		recorder = mgr.GetEventRecorder(name)
	}
	if err := add(mgr, config, setup, may, recorder); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// elect makes the manager lead only with the Lease. may returns an error if the Lease is too old to
// send a request. A leader that was frozen may not know yet that another replica leads. Its planned
// and queued requests are not sent then.
func elect(config *rest.Config, duration time.Duration, options *manager.Options) (may func() error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// Kubernetes' own components use these proportions, with a lease of 15 s.
	renewWithin, tryEvery := duration*2/3, duration*2/15
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, metav1.NamespaceSystem, name,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, config, renewWithin)
	if err != nil {
		return nil, fmt.Errorf("creating the lock of leader election: %w", err)
	}
	lock := leader.NewLock(inner, duration)
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionResourceLockInterface = true, name, lock
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &duration, &renewWithin, &tryEvery
	// The process ends with the manager, after everything that requires the Lease has ended.
	options.LeaderElectionReleaseOnCancel = true
	return func() error {
		if !lock.RenewedWithin(renewWithin) {
			return errStaleLease
		}
		return nil
	}, nil
}

// add adds all runnables to the manager.
func add(mgr manager.Manager, config *rest.Config, setup *setup, may func() error, recorder events.EventRecorder) error {
	reader, err := newReader(config)
	if err != nil {
		return fmt.Errorf("creating the client that reads: %w", err)
	}
	writer, err := newWriter(config, setup.RequestsPerSecond, may)
	if err != nil {
		return fmt.Errorf("creating the client that writes: %w", err)
	}
	caches, err := newCaches(reader)
	if err != nil {
		return fmt.Errorf("creating the caches: %w", err)
	}
	var evictions *evictions
	if setup.EvictionRequests {
		if evictions, err = newEvictions(config, may); err != nil {
			return err
		}
	}
	parts, err := join(setup, caches.factory, evictions, writer, recorder, func(s *snapshot.Snapshot, over func() bool) rebalance.Room {
		return simulation.NewRoomUntil(s, over)
	})
	if err != nil {
		return err
	}
	gater, err := newGater(config, setup, caches, parts, may, recorder)
	if err != nil {
		return err
	}
	rounds := loop.New(parts.makePlan, caches.full, setup.DryRun, setup.Concurrency)
	for _, informer := range parts.watched {
		if err := rounds.Watch(informer); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	if err := rounds.WatchNodes(caches.factory.Core().V1().Nodes().Informer()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	leader := manager.RunnableFunc(func(ctx context.Context) error {
		// The Lease is released after all requests sent under it have been answered.
		defer parts.wait()
		return rounds.Start(ctx)
	})
	if evictions != nil {
		if err := errors.Join(rounds.Watch(evictions.informer), mgr.Add(evictions)); err != nil {
			return err
		}
	}
	if gater != nil {
		if err := mgr.Add(gater); err != nil {
			return err
		}
	}
	return errors.Join(
		mgr.Add(caches), mgr.Add(leader),
		mgr.AddReadyzCheck("caches", caches.ready),
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddHealthzCheck("loop", rounds.CheckHealth),
	)
}

// noEvents drops all events.
type noEvents struct{}

// Eventf implements events.EventRecorder.
func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}
