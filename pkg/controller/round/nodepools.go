package round

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// NodePools reads providers.NodePools once a minute. It is no error if the API server does not
// serve them.
type NodePools struct {
	Reader       dynamic.Interface
	Provisioning *simulation.Provisioning
}

// Start implements manager.Runnable.
func (p *NodePools) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, p.read, time.Minute)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *NodePools) NeedLeaderElection() bool { return false }

func (p *NodePools) read(ctx context.Context) {
	list, err := p.Reader.Resource(providers.NodePools).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		p.Provisioning.SetPools(nil)
		return
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading NodePools failed, will retry")
		return
	}
	var pools []providers.NodePool
	for i := range list.Items {
		pool, err := providers.ReadNodePool(&list.Items[i])
		if err != nil {
			klog.FromContext(ctx).Error(err, "Ignoring NodePools")
			p.Provisioning.SetPools(nil)
			return
		}
		pools = append(pools, pool)
	}
	p.Provisioning.SetPools(pools)
}
