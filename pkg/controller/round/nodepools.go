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

// NodePools reads providers.NodePools every 5 seconds. It is no error if the API server does not
// serve them. After any other error, what was read before still counts.
type NodePools struct {
	Reader       dynamic.Interface
	Provisioning *simulation.Provisioning
}

// Start implements manager.Runnable.
func (p *NodePools) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, p.read, 5*time.Second)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *NodePools) NeedLeaderElection() bool { return false }

func (p *NodePools) read(ctx context.Context) {
	list, err := p.Reader.Resource(providers.NodePools).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	var pools []providers.NodePool
	for i := 0; err == nil && i < len(list.Items); i++ {
		var pool providers.NodePool
		pool, err = providers.ReadNodePool(&list.Items[i])
		pools = append(pools, pool)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Reading NodePools failed, will retry", "err", err)
		return
	}
	p.Provisioning.SetPools(pools)
}
