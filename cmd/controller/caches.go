package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// caches fills the informers' caches, whether this replica leads or stands by: a new leader acts at once.
type caches struct {
	factory informers.SharedInformerFactory
	// full is closed when every cache has been filled.
	full chan struct{}
}

func newCaches(client kubernetes.Interface) *caches {
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
	return &caches{factory: factory, full: make(chan struct{})}
}

// Start implements manager.Runnable.
func (c *caches) Start(ctx context.Context) error {
	c.factory.Start(ctx.Done())
	for _, filled := range c.factory.WaitForCacheSync(ctx.Done()) {
		if !filled {
			return nil // the process ends
		}
	}
	close(c.full)
	cachesSynced.Set(1)
	<-ctx.Done()
	c.factory.Shutdown()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *caches) NeedLeaderElection() bool { return false }

// ready is a healthz.Checker.
func (c *caches) ready(*http.Request) error {
	select {
	case <-c.full:
		return nil
	default:
		return errors.New("the caches are being filled")
	}
}
