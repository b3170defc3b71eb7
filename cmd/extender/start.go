package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/daemon"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
)

// name is that of the lock and of who reports events.
const name = "spot-extender"

// stopWithin is how long a replica that is told to end takes to answer what it has been asked; bindWithin comes after it.
const stopWithin = 10 * time.Second

// perSecond is how many requests each client sends, on average and at once: events and takeovers, but no placement.
const perSecond = 100

// start runs the extender until ctx is done, the lease is lost or something cannot be started.
func start(ctx context.Context, setup *setup) error {
	setup.warn(klog.FromContext(ctx))
	config, err := daemon.Connect(setup.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = perSecond, perSecond
	mgr, err := manager.New(config, manager.Options{
		Logger:                  klog.Background(),
		HealthProbeBindAddress:  setup.healthAddress,
		GracefulShutdownTimeout: ptr.To(stopWithin + bindWithin + 2*time.Second),
		Metrics: metricsserver.Options{
			BindAddress: setup.metricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := daemon.NewInformers(client)
	decider, err := extender.New(setup.profile, setup.policy, setup.signals, factory, mgr.GetEventRecorder(name), clock.RealClock{})
	if err != nil {
		return err
	}
	synced, err := decider.Watch(factory)
	if err != nil {
		return err
	}
	decider.RegisterMetrics(synced)
	if setup.tls != nil {
		setup.tls.registerMetrics()
	}
	daemon.ServeAllMetrics()
	service, err := newService(setup, config, client, factory, decider, synced)
	if err != nil {
		return err
	}
	return errors.Join(
		mgr.Add(service),
		mgr.AddReadyzCheck("caches", service.ready), mgr.AddHealthzCheck("ping", healthz.Ping),
		func() error { return mgr.Start(ctx) }(),
	)
}

// warn logs what the configuration says and does not get.
func (s *setup) warn(logger klog.Logger) {
	if len(s.unused) > 0 {
		logger.Info("Warning: pools are not compared by risk here, so these arguments of SpotPreference do nothing",
			"arguments", s.unused, "file", s.schedulerConfigFile)
	}
}

// ready is a healthz.Checker: a replica is ready with full caches, whether it leads or stands by.
func (s *service) ready(*http.Request) error {
	if !s.synced() {
		return errNotSynced
	}
	return nil
}
