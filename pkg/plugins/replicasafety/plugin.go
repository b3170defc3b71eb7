// Package replicasafety is the scheduler plugin that keeps the floor of every workload off spot
// nodes. It adapts the scheduler framework to package decision, which contains the policy.
package replicasafety

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/nodepools"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "ReplicaSafety"

// Plugin is ReplicaSafety for one profile.
type Plugin struct {
	profile string
	policy  *decision.Policy
	reader  *node.Reader
	labels  *node.LabelReporter
	owners  *workload.Owners
	counter *placement.Counter
	waiting *placement.WaitingPods

	nominator   fwk.PodNominator
	nominations *placement.Nominations

	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	recorder events.EventRecorder
	clock    clock.WithDelayedExecution
	handlers []cache.ResourceEventHandlerRegistration
	// schedulesGangs reports whether the profile schedules gangs.
	schedulesGangs func() bool
	volumesOf      func(*v1.Pod) []*v1.PersistentVolume // workload.VolumesOf

	// cluster reads the metrics.
	cluster profilemetrics.Cluster
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

// NewFactory returns a function that builds the plugin from its args, a *config.ReplicaSafetyArgs.
// gangs reports whether the profile of a handle schedules gangs; nil means that none does. The
// plugin calls it after the profile is complete, which it is not while its plugins are built.
// memory passes on the losses of spot pools to later leaders.
func NewFactory(gangs func(fwk.Handle) bool, memory *leader.Memory) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return newPlugin(ctx, args, handle, memory, sync.OnceValue(func() bool { return gangs != nil && gangs(handle) }))
	}
}

// newPlugin requests all its informers from the shared factory, so the scheduler starts them and
// waits for their sync.
func newPlugin(ctx context.Context, args runtime.Object, handle fwk.Handle, memory *leader.Memory, gangs func() bool) (fwk.Plugin, error) {
	safety, ok := args.(*config.ReplicaSafetyArgs)
	if !ok {
		return nil, fmt.Errorf("expected args of kind ReplicaSafetyArgs, got %T", args)
	}
	policy, signals, err := safety.Policy()
	if err != nil {
		return nil, err
	}
	factory := handle.SharedInformerFactory()
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	for informer, trim := range map[cache.SharedIndexInformer]cache.TransformFunc{
		factory.Core().V1().Nodes().Informer(): new(transform.NodeTrimmer).Trim,
		factory.Core().V1().Pods().Informer():  new(transform.PodTrimmer).Trim,
	} {
		if err := informer.SetTransform(trim); err != nil {
			return nil, err
		}
	}
	reader := &node.Reader{Policy: policy, Signals: signals}
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	p := &Plugin{
		profile:  handle.ProfileName(),
		policy:   policy,
		reader:   reader,
		owners:   owners,
		counter:  placement.NewCounter(reader),
		pods:     factory.Core().V1().Pods().Lister(),
		nodes:    factory.Core().V1().Nodes().Lister(),
		recorder: handle.EventRecorder(),
		clock:    clock.RealClock{},

		nominator:      handle,
		nominations:    placement.NewNominations(),
		volumesOf:      workload.VolumesOf(factory),
		schedulesGangs: gangs,
	}
	p.labels = &node.LabelReporter{Policy: policy, Nodes: p.nodes, Recorder: p.recorder, Clock: p.clock}
	p.counter.Memory = memory
	if p.counter.Evidence.Pools, err = nodepools.Start(ctx, handle.KubeConfig()); err != nil {
		return nil, err
	}
	p.waiting = placement.NewWaitingPods(clock.RealClock{}, func(pods map[string]*v1.Pod) { handle.Activate(logger, pods) })
	if err := p.watch(factory); err != nil {
		return nil, err
	}
	p.cluster = profilemetrics.Cluster{
		Profile: p.profile, Nodes: p.nodes, Reader: reader, Pods: p.pods, Owners: owners, VolumesOf: p.volumesOf,
		Includes: workload.Scope{Profile: p.profile}.Includes, Pools: p.counter.Evidence.Pools, Waiting: p.waiting.ForOnDemand,
		Synced: p.synced, Clock: p.clock,
	}
	registerMetrics(&p.cluster)
	return p, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// gangOf returns the gang of pod; the zero Gang if the pod is scheduled individually. The label
// alone does not make a gang. Without a plugin that schedules gangs, it would only let one pod fall
// back after the waiting time of another.
func (p *Plugin) gangOf(pod *v1.Pod) placement.Gang {
	group := workload.PodGroupOf(pod)
	if group == "" || !p.schedulesGangs() {
		return placement.Gang{}
	}
	return placement.Gang{Revision: workload.RevisionOf(pod), PodGroup: group}
}

// synced reports whether every handler has processed its complete initial list. With incomplete
// caches, a starting scheduler would violate every floor.
func (p *Plugin) synced() bool {
	return !slices.ContainsFunc(p.handlers, func(handler cache.ResourceEventHandlerRegistration) bool { return !handler.HasSynced() })
}

// These are the metrics that only the scheduler has, served by the scheduler's own /metrics
// endpoint. The label profile is the schedulerName of a configured profile.
var (
	decisionDuration = metrics.NewHistogramVec("decision_duration_seconds",
		"Time of PreFilter of ReplicaSafety: find the pod's owner, count its siblings, plan its placement and choose the nodes to "+
			"search. The label search is 'few', 'all', or 'all-after-few' if the pod fit on none of the few nodes.",
		// 1 us to 0.5 s: a warm count takes microseconds. A cold count of 100,000 nodes takes tens
		// of milliseconds.
		basemetrics.ExponentialBuckets(1e-6, 2, 20), "profile", "search")
)

var registerOnce sync.Once

// registerMetrics registers the metrics with the scheduler's registry.
func registerMetrics(cluster *profilemetrics.Cluster) {
	registerOnce.Do(func() { legacyregistry.MustRegister(decisionDuration) })
	profilemetrics.Register(cluster)
	for _, scope := range []placement.Scope{placement.FewNodes, placement.AllNodes, placement.AllAfterFew} {
		decisionDuration.WithLabelValues(cluster.Profile, string(scope))
	}
}
