package round

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// NodeOwners caches the metadata of the objects that own nodes (providers.NodeOwner).
type NodeOwners struct {
	reader   metadata.Interface
	informer cache.SharedIndexInformer
}

// NewNodeOwners returns NodeOwners that have not started.
func NewNodeOwners(reader metadata.Interface) *NodeOwners {
	return &NodeOwners{reader, metadatainformer.NewFilteredMetadataInformer(reader, providers.NodeOwner, metav1.NamespaceAll, 0, nil,
		nil).Informer()}
}

// Start implements manager.Runnable. It checks once a minute whether the API server serves the
// resource, and then watches it.
func (o *NodeOwners) Start(ctx context.Context) error {
	served := func(ctx context.Context) (bool, error) {
		_, err := o.reader.Resource(providers.NodeOwner).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Reading the owners of nodes failed, will retry")
		}
		return err == nil, nil
	}
	if wait.PollUntilContextCancel(ctx, time.Minute, true, served) == nil {
		o.informer.RunWithContext(ctx)
	}
	return nil
}

// owner returns the object that owns the node; nil if it is not cached.
func (o *NodeOwners) owner(node *v1.Node) metav1.Object {
	for _, ref := range node.OwnerReferences {
		object, _, _ := o.informer.GetStore().GetByKey(ref.Name) // the cache returns no error
		if owner, ok := object.(metav1.Object); ok && owner.GetUID() == ref.UID {
			return owner
		}
	}
	return nil
}
