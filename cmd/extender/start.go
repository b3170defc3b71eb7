package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/nodepools"
)

// name is the name of the lease and of the reporter of events.
const name = "spot-extender"

// clientQPS is the rate limit and burst of each client, in requests per second. Events and
// takeovers use it; placements send no requests.
const clientQPS = 100

// Timeouts of clients. kube-scheduler is on the same network, and waits at most 2 s in total
// (config/extender.yaml).
const (
	requestTimeout = 10 * time.Second
	answerTimeout  = 20 * time.Second // from the headers on
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// stopTimeout is the time within which a replica stops, which includes bindingTimeout. It is
// shorter than the grace period of the pod.
const stopTimeout = 15 * time.Second

// start runs the extender until ctx is done, the lease is lost or a component fails to start.
func start(ctx context.Context, o *options) error {
	config, err := app.Connect(o.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = clientQPS, clientQPS
	if err := leader.CheckInstallation(ctx, config, name); err != nil {
		return err
	}
	options := app.ManagerOptions(o.healthAddress, o.metricsAddress, stopTimeout)
	replica := &replica{identity: o.advertiseAddress + identitySeparator + string(uuid.NewUUID())}
	if replica.lock, err = app.Elect(config, name, replica.identity, leaseDuration, &options); err != nil {
		return err
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	factory := app.NewInformers(client)
	decider, err := extender.New(o.Profile, o.policy, o.signals, factory, mgr.GetEventRecorder(name), clock.RealClock{})
	if err != nil {
		return err
	}
	pools, err := nodepools.Start(ctx, config)
	if err != nil {
		return err
	}
	decider.SetPools(pools)
	replica.decider = decider
	if replica.synced, err = decider.Watch(factory); err != nil {
		return err
	}
	if replica.takeover, err = leader.NewTakeover(config, decider.Counts, leader.BoundPods, leader.NominatedPods); err != nil {
		return err
	}
	decider.RegisterMetrics(replica.synced)
	app.ServeAllMetrics()
	listener, err := net.Listen("tcp", o.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	handler := o.tls.requireClient(extender.NewHandler(decider, replica))
	// The informers and the authority are used until the server has stopped, which is the last.
	factory.Start(wait.NeverStop)
	go o.tls.clientCA.Run(context.WithoutCancel(ctx), 1)
	return errors.Join(
		mgr.Add(o.tls.serving), mgr.Add(replica),
		mgr.Add(&manager.Server{Name: "extender", Server: newServer(handler), Listener: tls.NewListener(listener, o.tls.tls())}),
		mgr.AddReadyzCheck("caches", app.ReadyWhen(replica.synced)), mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.Start(ctx),
	)
}

func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:     handler,
		ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: klog.NewStandardLogger("INFO"),
	}
}
