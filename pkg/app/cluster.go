package app

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// Connect returns the configuration for the API server: from a kubeconfig, or else from the pod
// that this process runs in. It ignores $KUBECONFIG, so the program never acts on a cluster by
// accident.
func Connect(kubeconfig string) (*rest.Config, error) {
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
	return config, nil
}

// NewInformers returns the informers that decisions depend on.
func NewInformers(client kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform.Trim))
	// Completed pods never count, and a cluster with Jobs has many.
	factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return corev1.NewFilteredPodInformer(client, metav1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			func(options *metav1.ListOptions) {
				options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
			})
	})
	// Only a started informer refuses a transform.
	utilruntime.Must(factory.Core().V1().Nodes().Informer().SetTransform(new(transform.NodeTrimmer).Trim))
	return factory
}

// NewFailedPods returns a factory whose informer of pods contains only the failed ones, with the
// fields of transform.FailedPod.
func NewFailedPods(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform.FailedPod),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "status.phase=Failed" }))
}

// ManagerOptions returns the options of a manager that serves health probes over HTTP, and metrics
// over HTTPS to clients with permission to read them. The address 0 disables either. When the
// manager stops, it waits for its runnables for at most shutdown.
func ManagerOptions(healthAddress, metricsAddress string, shutdown time.Duration) manager.Options {
	return manager.Options{
		Logger:                  klog.Background(),
		HealthProbeBindAddress:  healthAddress,
		GracefulShutdownTimeout: &shutdown,
		Metrics: metricsserver.Options{
			BindAddress: metricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
	}
}

// ReadyWhen returns a check that fails until synced reports that the caches are full.
func ReadyWhen(synced func() bool) healthz.Checker {
	return func(*http.Request) error {
		if !synced() {
			return errors.New("the caches are being filled")
		}
		return nil
	}
}

// Elect makes a manager lead only with the Lease name in the installation's namespace. identity is
// the identity of this process in the Lease. The manager releases the Lease after its runnables
// have ended. A runnable may run for some time after the Lease has expired, so actions need
// Lock.RenewedWithin.
func Elect(config *rest.Config, name, identity string, duration time.Duration, options *manager.Options) (*leader.Lock, error) {
	// The retry period is as long, in proportion, as that of the components of Kubernetes.
	renewDeadline, retryPeriod := leader.RenewDeadline(duration), duration*2/15
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, leader.Namespace(), name,
		resourcelock.ResourceLockConfig{Identity: identity}, config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("creating the lock of leader election: %w", err)
	}
	lock := leader.NewLock(lease, duration)
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionResourceLockInterface = true, name, lock
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &duration, &renewDeadline, &retryPeriod
	// The process ends with the manager, after everything that requires the Lease has ended.
	options.LeaderElectionReleaseOnCancel = true
	return lock, nil
}

// ServeAllMetrics adds the metrics of the Kubernetes registry to controller-runtime's registry,
// which is the only one that a manager serves. It must be called once, before a manager serves
// metrics.
func ServeAllMetrics() {
	ctrlmetrics.Registry = struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{ctrlmetrics.Registry, prometheus.Gatherers{ctrlmetrics.Registry, legacyregistry.DefaultGatherer}}
}
