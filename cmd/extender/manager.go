package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// name is the name of the lease and of the reporter of events.
const name = "spot-extender"

// stopTimeout is the time within which a stopping replica answers pending requests; bindingTimeout
// follows.
const stopTimeout = 10 * time.Second

// clientQPS is the rate limit and burst of each client, in requests per second. Events and
// takeovers use it; placements send no requests.
const clientQPS = 100

// start runs the extender until ctx is done, the lease is lost or a component fails to start.
func start(ctx context.Context, setup *setup) error {
	setup.warn(klog.FromContext(ctx))
	config, err := app.Connect(setup.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = clientQPS, clientQPS
	mgr, err := manager.New(config, app.ManagerOptions(setup.healthAddress, setup.metricsAddress, stopTimeout+bindingTimeout+2*time.Second))
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	factory := app.NewInformers(client)
	decider, err := extender.New(setup.profile, setup.policy, setup.signals, factory, mgr.GetEventRecorder(name), clock.RealClock{})
	if err != nil {
		return err
	}
	synced, err := decider.Watch(factory)
	if err != nil {
		return err
	}
	decider.RegisterMetrics(synced)
	legacyregistry.CustomMustRegister(&expiries{certificates: setup.tls})
	app.ServeAllMetrics()
	service := &service{setup: setup, client: client, factory: factory, decider: decider, synced: synced}
	if service.takeover, err = leader.NewTakeover(config, decider.IsBound); err != nil {
		return err
	}
	if service.election, err = newElection(config, setup.advertiseAddress, service.startTerm); err != nil {
		return err
	}
	return errors.Join(
		mgr.Add(service), mgr.Add(setup.tls.serving),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { setup.tls.clientCA.Run(ctx, 1); return nil })),
		mgr.AddReadyzCheck("caches", service.ready), mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.Start(ctx),
	)
}

// warn logs arguments in the configuration that have no effect.
func (s *setup) warn(logger klog.Logger) {
	if len(s.ignoredArguments) > 0 {
		logger.Info("Warning: the extender does not compare pools by risk, so these arguments of SpotPreference have no effect",
			"arguments", s.ignoredArguments, "file", s.schedulerConfigFile)
	}
}

// ready implements healthz.Checker. A replica with synced caches is ready, as leader or as standby.
func (s *service) ready(*http.Request) error {
	if !s.synced() {
		return errNotSynced
	}
	return nil
}
