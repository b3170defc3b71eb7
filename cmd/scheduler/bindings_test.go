package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// binder is a profile whose bindings block until released.
type binder struct {
	framework.Framework
	begun   chan string
	release chan struct{}
}

func (b binder) RunBindPlugins(_ context.Context, _ fwk.CycleState, _ *v1.Pod, nodeName string) *fwk.Status {
	b.begun <- nodeName
	<-b.release
	return nil
}

// At most maxBindings bindings run concurrently, over all profiles. The next one begins when one
// ends. The scheduler takes the next pod after the bindings that waited before. A waiting binding
// fails when its context ends.
func TestLimitBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := binder{begun: make(chan string, 3*maxBindings), release: make(chan struct{})}
		taken := make(chan struct{}, 1)
		sched := &scheduler.Scheduler{Profiles: profile.Map{"a": b, "b": b}, NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) {
			taken <- struct{}{}
			return nil, nil
		}}
		limitBindings(sched, func() bool { return true })
		bind := func(ctx context.Context, name string) *fwk.Status {
			return sched.Profiles[name].RunBindPlugins(ctx, nil, nil, name)
		}
		for range maxBindings {
			go bind(t.Context(), "a")
			go bind(t.Context(), "b")
		}
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := make(chan *fwk.Status)
		go func() { waits <- bind(ctx, "a") }()
		synctest.Wait()
		if n := len(b.begun); n != maxBindings {
			t.Errorf("%d bindings of %d are running, want %d", n, 2*maxBindings, maxBindings)
		}
		go sched.NextPod(klog.Background())

		lost := errors.New("lease lost")
		cancel(lost)
		if status := <-waits; !errors.Is(status.AsError(), lost) {
			t.Errorf("a binding that waited until its context ended: %v, want %v", status, lost)
		}
		b.release <- struct{}{}
		synctest.Wait()
		if n := len(b.begun); n != maxBindings+1 || len(taken) > 0 {
			t.Errorf("%d bindings have begun after one ended, %d pods were taken; want %d and 0", n, len(taken), maxBindings+1)
		}
		close(b.release)
		synctest.Wait()
		if n := len(b.begun); n != 2*maxBindings || len(taken) != 1 {
			t.Errorf("%d bindings have begun in the end, %d pods were taken; want %d and 1", n, len(taken), 2*maxBindings)
		}
	})
}

// Bindings that waited until the lease expired are not sent.
func TestBindingsOfAnEarlierTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := binder{begun: make(chan string, 2*maxBindings), release: make(chan struct{})}
		sched, fresh := &scheduler.Scheduler{Profiles: profile.Map{"a": b}}, atomic.Bool{}
		fresh.Store(true)
		limitBindings(sched, fresh.Load)
		results := make(chan *fwk.Status, 2*maxBindings)
		for range 2 * maxBindings {
			go func() { results <- sched.Profiles["a"].RunBindPlugins(t.Context(), nil, nil, "n") }()
		}
		synctest.Wait()
		fresh.Store(false)
		close(b.release)
		synctest.Wait()
		stale := 0
		for range 2 * maxBindings {
			if status := <-results; errors.Is(status.AsError(), errStaleLease) {
				stale++
			}
		}
		if stale != maxBindings || len(b.begun) != maxBindings {
			t.Errorf("%d of %d bindings were sent and %d were not because of the lease, want %d each", len(b.begun), 2*maxBindings, stale, maxBindings)
		}
	})
}
