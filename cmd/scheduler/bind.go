package main

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// mostBindings is how many bindings are under way at a time. An API server that is slower than the scheduler for a while queues what
// it is sent, of one client 300 requests at most (6 queues of 50, priority level workload-high of Kubernetes 1.36), and refuses the
// rest, to be tried again a second later at the earliest: then thousands of bindings stand in each other's way. A rate does not keep from
// that, because the right one is the server's. docs/design/throughput.md has the measurement.
const mostBindings = 100

// errStaleLease is why a binding is not sent. The pod is tried again.
var errStaleLease = errors.New("the lease has not been renewed in time: another scheduler may lead by now")

// boundBindings lets plugins bind no more than mostBindings pods of sched at a time, over all profiles, and none while the lease is not
// fresh: a binding that has waited for others may be one of an earlier term. The event of each binding comes on top.
func boundBindings(sched *scheduler.Scheduler, fresh func() bool) {
	slots := make(chan struct{}, mostBindings)
	for name, profile := range sched.Profiles {
		sched.Profiles[name] = boundedProfile{profile, slots, fresh}
	}
}

// boundedProfile is a profile whose bindings each take one of slots.
type boundedProfile struct {
	framework.Framework
	slots chan struct{}
	fresh func() bool
}

// RunBindPlugins waits for a slot. It fails with the cause of ctx, and with errStaleLease.
func (p boundedProfile) RunBindPlugins(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
	defer func() { <-p.slots }()
	if !p.fresh() {
		return fwk.AsStatus(errStaleLease)
	}
	return p.Framework.RunBindPlugins(ctx, cycle, pod, nodeName)
}
