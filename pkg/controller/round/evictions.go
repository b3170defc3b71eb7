package round

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/responder"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Evictions are the Evictions in the cluster, and the client that writes the responses to them.
type Evictions struct {
	informer cache.SharedIndexInformer
	writer   dynamic.Interface
}

// NewEvictions returns Evictions that have not started. reader fills their cache.
func NewEvictions(reader, writer dynamic.Interface) *Evictions {
	return &Evictions{dynamicinformer.NewDynamicSharedInformerFactory(reader, 0).ForResource(responder.Resource).Informer(), writer}
}

// Start implements manager.Runnable. If the API server does not serve Evictions, the informer
// retries without delaying anything else.
func (e *Evictions) Start(ctx context.Context) error {
	e.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *Evictions) NeedLeaderElection() bool { return false }

// planEvictions returns the moves of pods whose eviction is requested, the UIDs of the pods, and
// the responses. With nil Evictions it returns nothing. Before the cache is full it returns only
// the moves of pods that were released for an earlier request.
func (c *Clients) planEvictions(
	s *snapshot.Snapshot, settings responder.Settings,
) (moves []migration.Move, requested map[types.UID]bool, writes []loop.Write) {
	e := c.Evictions
	if e == nil {
		return nil, nil, nil
	}
	if !e.informer.HasSynced() {
		return responder.Released(s), nil, nil
	}
	var all []*unstructured.Unstructured
	for _, object := range e.informer.GetStore().List() {
		all = append(all, object.(*unstructured.Unstructured))
	}
	moves, requested, responses := responder.Plan(s, all, settings)
	for _, r := range responses {
		writes = append(writes, c.newWrite(loop.EvictionResponse, r.Eviction, r.Message,
			func(ctx context.Context) error { return r.Apply(ctx, e.writer, time.Now()) }))
	}
	return moves, requested, writes
}
