package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/disruptions"
)

// countsPerSecond is the rate and the burst of the writes of disruptions. A Job needs at most as
// many writes as its disruption limit.
const countsPerSecond = 100

// newCounter returns the runnable that counts the disruptions of Jobs; nil in a dry run. It has its
// own client, so that it does not delay moves: the Job controller creates the next pod about a
// second after a disruption, and the scheduler needs the count by then. It must be called before
// the caches are started.
func newCounter(config *rest.Config, setup *setup, caches *caches, mayWrite func() error) (manager.Runnable, error) {
	if setup.DryRun {
		return nil, nil
	}
	client, err := newWriter(config, countsPerSecond, mayWrite)
	if err != nil {
		return nil, fmt.Errorf("creating the client that counts disruptions: %w", err)
	}
	counter, err := disruptions.New(caches.factory, caches.failedPods, client, setup.Profile, setup.Policy)
	if err != nil {
		return nil, fmt.Errorf("connecting the counter of disruptions to the caches: %w", err)
	}
	return caches.whenSynced(counter.Run), nil
}
