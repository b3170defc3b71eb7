// Package nodepools reads the pools from which Karpenter adds nodes.
package nodepools

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// firstRead is how long Start waits for the first answer. Without it, other nodes would prove that
// no on-demand node can be added.
const firstRead = 10 * time.Second

// Start returns the pools, which Watch updates until ctx is done; nil without a config.
func Start(ctx context.Context, config *rest.Config) (*workload.Pools, error) {
	if config == nil {
		return nil, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client that reads NodePools: %w", err)
	}
	pools := &workload.Pools{}
	_ = wait.PollUntilContextTimeout(ctx, time.Second, firstRead, true, func(ctx context.Context) (bool, error) {
		return read(ctx, client, pools), nil
	})
	go Watch(ctx, client, pools)
	return pools, nil
}

// Watch reads providers.NodePools every 5 seconds until ctx is done. It is no error if the API
// server does not serve them. After any other error, what was read before still counts.
func Watch(ctx context.Context, client dynamic.Interface, pools *workload.Pools) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { read(ctx, client, pools) }, 5*time.Second)
}

// read reports whether the API server has answered.
func read(ctx context.Context, client dynamic.Interface, pools *workload.Pools) bool {
	list, err := client.Resource(providers.NodePools).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Reading NodePools failed, will retry", "err", err)
		return apierrors.IsForbidden(err)
	}
	var found []providers.NodePool
	for i := 0; err == nil && i < len(list.Items); i++ {
		found = append(found, providers.ReadNodePool(&list.Items[i]))
	}
	pools.SetPools(found)
	return true
}
