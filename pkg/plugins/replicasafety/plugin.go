// Package replicasafety is the scheduler plugin that keeps every workload's floor of replicas off spot nodes. It adapts the scheduler
// framework to package decision, which decides.
//
//	plugin.go    construction
//	nominees.go  which siblings preemption has promised a node
//	filter.go    PreFilter with AddPod and RemovePod, Filter: may the pod go there
//	wait.go      PostFilter: what an unschedulable pod waits for
//	wake.go      events and informer handlers: what has it tried again
//	place.go     Reserve, PostBind: metrics and events of placements
//	sign.go      SignPod: which pods may share one decision
//	observe.go   floor deficits and nodes, for metrics
package replicasafety

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "ReplicaSafety"

// Plugin is ReplicaSafety for one profile.
type Plugin struct {
	profile string
	policy  *decision.Policy
	reader  *kube.NodeReader
	owners  *kube.Owners
	labels  *kube.LabelHistory
	counter *placement.Counter
	waiting *placement.Waiting

	nominator   fwk.PodNominator
	nominations *nominations

	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	recorder events.EventRecorder
	logger   klog.Logger
	clock    clock.WithDelayedExecution
	handlers []cache.ResourceEventHandlerRegistration
	// gangs reports whether the profile places gangs.
	gangs func() bool

	// deficits is observe's.
	deficits kube.Deficits
}

var (
	_ fwk.PreFilterPlugin     = &Plugin{}
	_ fwk.PreFilterExtensions = &Plugin{}
	_ fwk.FilterPlugin        = &Plugin{}
	_ fwk.PostFilterPlugin    = &Plugin{}
	_ fwk.ReservePlugin       = &Plugin{}
	_ fwk.PostBindPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions   = &Plugin{}
	_ fwk.SignPlugin          = &Plugin{}
)

// New builds the plugin from its args, a *config.ReplicaSafetyArgs, for a profile that places no gangs. It remembers by itself whether nodes
// with capacity labels were seen.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return newPlugin(ctx, args, handle, &kube.LabelHistory{}, func() bool { return false })
}

// With returns a New for profiles that may place gangs. gangs reports whether the profile of a handle does. It is called when the profile is
// complete, which it is not yet when its plugins are built. The plugins of all profiles share labels.
func With(labels *kube.LabelHistory, gangs func(fwk.Handle) bool) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return newPlugin(ctx, args, handle, labels, sync.OnceValue(func() bool { return gangs(handle) }))
	}
}

// newPlugin asks the shared informer factory for all that the plugin needs, so that the scheduler starts those informers and waits for
// them.
func newPlugin(ctx context.Context, args runtime.Object, handle fwk.Handle, labels *kube.LabelHistory, gangs func() bool) (fwk.Plugin, error) {
	safety, ok := args.(*config.ReplicaSafetyArgs)
	if !ok {
		return nil, fmt.Errorf("expected args of kind ReplicaSafetyArgs, got %T", args)
	}
	policy, signals, err := safety.Policy()
	if err != nil {
		return nil, err
	}
	factory := handle.SharedInformerFactory()
	owners, err := kube.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	for informer, trim := range map[cache.SharedIndexInformer]cache.TransformFunc{
		factory.Core().V1().Nodes().Informer(): kube.Trim,
		factory.Core().V1().Pods().Informer():  kube.NewPodTrimmer().Trim,
	} {
		if err := informer.SetTransform(trim); err != nil {
			return nil, err
		}
	}
	reader := &kube.NodeReader{Policy: policy, Signals: signals}
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	p := &Plugin{
		profile:  handle.ProfileName(),
		policy:   policy,
		reader:   reader,
		owners:   owners,
		labels:   labels,
		counter:  placement.NewCounter(reader, labels),
		pods:     factory.Core().V1().Pods().Lister(),
		nodes:    factory.Core().V1().Nodes().Lister(),
		recorder: handle.EventRecorder(),
		logger:   logger,
		clock:    clock.RealClock{},

		nominator:   handle,
		nominations: newNominations(),
		gangs:       gangs,
	}
	p.waiting = placement.NewWaiting(clock.RealClock{}, func(pods map[string]*v1.Pod) { handle.Activate(logger, pods) })
	if err := p.watch(factory); err != nil {
		return nil, err
	}
	placement.RegisterMetrics(p.profile, p.observe)
	return p, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// gangOf returns the gang that pod is placed with; the zero Gang if it is placed by itself. The label alone makes no gang: without a plugin
// that places gangs, it would only let a pod fall back by the clock of another.
func (p *Plugin) gangOf(pod *v1.Pod) placement.Gang {
	group := kube.GangOf(pod)
	if group == "" || !p.gangs() {
		return placement.Gang{}
	}
	return placement.Gang{Revision: kube.RevisionOf(pod), PodGroup: group}
}

// synced reports whether every handler has seen the whole of its first list. Empty caches are how a scheduler breaks every floor
// when it starts.
func (p *Plugin) synced() bool {
	for _, handler := range p.handlers {
		if !handler.HasSynced() {
			return false
		}
	}
	return true
}
