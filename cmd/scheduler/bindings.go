package main

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// maxBindings limits the number of concurrent bindings. A slow API server queues at most 300
// requests of one client (6 queues of 50, priority level workload-high of Kubernetes 1.36). It
// refuses further requests, which are retried after one second at the earliest, and thousands of
// bindings then block each other. docs/design/throughput.md has the measurement.
const maxBindings = 100

// errStaleLease is the reason why a binding is not sent. The scheduler retries the pod.
var errStaleLease = errors.New("the lease has not been renewed in time: another scheduler may lead by now")

// limitBindings limits sched to maxBindings concurrent bindings, over all profiles. While they are
// in flight, sched takes no pod: a decision that waits becomes outdated and uses memory. It
// sends no binding while the lease is not fresh, because a binding that waited may belong to an
// earlier term. The events of the bindings do not count.
func limitBindings(sched *scheduler.Scheduler, fresh func() bool) {
	slots, next := make(chan struct{}, maxBindings), sched.NextPod
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		slots <- struct{}{} // after the bindings that already wait
		<-slots
		return next(logger)
	}
	for name, profile := range sched.Profiles {
		sched.Profiles[name] = limitedProfile{profile, slots, fresh}
	}
}

// limitedProfile is a profile whose bindings each use one of slots.
type limitedProfile struct {
	framework.Framework
	slots chan struct{}
	fresh func() bool
}

// RunBindPlugins waits for a slot and then binds the pod. It fails with the cause of ctx or with
// errStaleLease.
func (p limitedProfile) RunBindPlugins(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
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
