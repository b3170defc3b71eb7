package round

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// NodeOwners caches the metadata of the objects that own nodes, as far as signals need it
// (providers.Signal.Owner).
type NodeOwners struct {
	reader    metadata.Interface
	informers map[schema.GroupVersionResource]cache.SharedIndexInformer
}

// NewNodeOwners returns NodeOwners that have not started.
func NewNodeOwners(reader metadata.Interface, signals []providers.Signal) *NodeOwners {
	o := &NodeOwners{reader, map[schema.GroupVersionResource]cache.SharedIndexInformer{}}
	for i := range signals {
		if resource := signals[i].Owner; !resource.Empty() && o.informers[resource] == nil {
			o.informers[resource] = metadatainformer.NewFilteredMetadataInformer(reader, resource, metav1.NamespaceAll, 0, nil, nil).Informer()
		}
	}
	return o
}

// servedInterval is the time between two checks whether the API server serves a resource.
const servedInterval = time.Minute

// Start implements manager.Runnable. It watches a resource as soon as the API server serves it.
func (o *NodeOwners) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for resource, informer := range o.informers {
		running.Go(func() {
			served := func(ctx context.Context) (bool, error) {
				_, err := o.reader.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
				return err == nil, nil
			}
			if wait.PollUntilContextCancel(ctx, servedInterval, true, served) == nil {
				informer.RunWithContext(ctx)
			}
		})
	}
	running.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (o *NodeOwners) NeedLeaderElection() bool { return false }

// annotations returns the annotations of the object that owns the node; nil if the caches have none.
func (o *NodeOwners) annotations(node *v1.Node) map[string]string {
	for _, ref := range node.OwnerReferences {
		for _, informer := range o.informers {
			object, exists, _ := informer.GetStore().GetByKey(ref.Name) // the cache returns no error
			if owner, ok := object.(metav1.Object); exists && ok && owner.GetUID() == ref.UID {
				return owner.GetAnnotations()
			}
		}
	}
	return nil
}
