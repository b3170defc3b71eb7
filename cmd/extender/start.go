package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

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
	config, err := connect(setup.kubeconfig)
	if err != nil {
		return err
	}
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
	factory := newFactory(client)
	decider, err := extender.New(setup.profile, setup.policy, setup.signals, factory, mgr.GetEventRecorder(name), clock.RealClock{})
	if err != nil {
		return err
	}
	synced, err := decider.Watch(factory)
	if err != nil {
		return err
	}
	registerMetrics(decider, synced)
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

// connect returns how the API server is reached: by a kubeconfig, or without one as the pod that this runs in.
func connect(kubeconfig string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS, config.Burst = perSecond, perSecond
	return config, nil
}

// newFactory returns the informers' factory.
func newFactory(client kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(ctrlcache.TransformStripManagedFields())) // nobody reads them, and they are big
	// Pods that have ended count nowhere, and a cluster with Jobs has many.
	factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return corev1.NewFilteredPodInformer(client, metav1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			func(options *metav1.ListOptions) {
				options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
			})
	})
	return factory
}

// registerMetrics is to be called once, before the manager serves metrics. The manager serves controller-runtime's registry alone; what is
// this project's, and Kubernetes', is in the other.
func registerMetrics(decider *extender.Extender, synced func() bool) {
	decider.RegisterMetrics(synced)
	ctrlmetrics.Registry = struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{ctrlmetrics.Registry, prometheus.Gatherers{ctrlmetrics.Registry, legacyregistry.DefaultGatherer}}
}

// ready is a healthz.Checker: a replica is ready with full caches, whether it leads or stands by.
func (s *service) ready(*http.Request) error {
	if !s.synced() {
		return errNotSynced
	}
	return nil
}
