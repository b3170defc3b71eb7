package main

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// caches fills the informers' caches on the leader and on the standby, so that a new leader acts at
// once.
type caches struct {
	factory informers.SharedInformerFactory
	// failedPods has the failed pods, which factory omits.
	failedPods informers.SharedInformerFactory
	// synced is closed when every cache is full.
	synced chan struct{}
}

func newCaches(client kubernetes.Interface) (*caches, error) {
	c := &caches{factory: app.NewInformers(client), failedPods: app.NewFailedPods(client), synced: make(chan struct{})}
	// Pods use most of the caches' memory.
	return c, c.factory.Core().V1().Pods().Informer().SetTransform(transform.NewMovedPodTrimmer().Trim)
}

func (c *caches) start(ctx context.Context) error {
	factories := []informers.SharedInformerFactory{c.factory, c.failedPods}
	for _, factory := range factories {
		factory.Start(ctx.Done())
	}
	for _, factory := range factories {
		for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return nil // the process ends
			}
		}
	}
	close(c.synced)
	cachesSynced.Set(1)
	<-ctx.Done()
	for _, factory := range factories {
		factory.Shutdown()
	}
	return nil
}

// whenSynced returns a runnable that runs when every cache is full, only on the leader.
func (c *caches) whenSynced(run func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		select {
		case <-c.synced:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *caches) full() bool { return closed(c.synced) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
