package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/responder"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// responsesPerSecond is the rate and the burst of responses to Evictions.
const responsesPerSecond = 20

// evictions are the Evictions that the controller responds to; nil if it responds to none.
type evictions struct {
	informer cache.SharedIndexInformer
	writer   dynamic.Interface
}

func newEvictions(config *rest.Config, may func() error) (*evictions, error) {
	reader, err := dynamic.NewForConfig(readOnly(config))
	if err != nil {
		return nil, fmt.Errorf("creating the client that reads Evictions: %w", err)
	}
	writer, err := dynamic.NewForConfig(writing(config, responsesPerSecond, may))
	if err != nil {
		return nil, fmt.Errorf("creating the client that responds to Evictions: %w", err)
	}
	return &evictions{dynamicinformer.NewDynamicSharedInformerFactory(reader, 0).ForResource(responder.Resource).Informer(), writer}, nil
}

// Start implements manager.Runnable. If the API server does not serve Evictions, the informer
// retries without delaying anything else.
func (e *evictions) Start(ctx context.Context) error {
	e.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e *evictions) NeedLeaderElection() bool { return false }

// plan returns the moves of pods whose eviction is requested, the UIDs of the pods, and the
// responses.
func (e *evictions) plan(s *snapshot.Snapshot, settings responder.Settings) (moves []migration.Move, requested map[types.UID]bool, writes []loop.Write) {
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
	plan := responder.New(s, all, settings)
	for _, r := range plan.Responses {
		writes = append(writes, loop.Write{
			Kind: loop.EvictionResponse, UID: r.Eviction.GetUID(), Version: r.Eviction.GetResourceVersion(), Name: klog.KObj(r.Eviction), Why: r.Message,
			Apply: func(ctx context.Context) error { return r.Apply(ctx, e.writer, time.Now()) },
		})
	}
	return plan.Moves, plan.Requested, writes
}
