// Package gang is the Coscheduling plugin of scheduler-plugins, which places the pods of a PodGroup all together or not at all, with what
// it lacks: its pods are tried again when something happens that may help them, and not over and over when nothing does.
//
//	plugin.go    the plugin
//	wake.go      events: what has a gang tried again
//	rest.go      which gangs rest after a rejection, and when the clock has them tried again
package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Name is the plugin's name in a KubeSchedulerConfiguration, that of the plugin it stands for.
const Name = coscheduling.Name

// Plugin is Coscheduling for one profile.
type Plugin struct {
	*coscheduling.Coscheduling
	pods  corelisters.PodLister
	nodes fwk.SharedLister
	rests *rests
}

var (
	_ fwk.QueueSortPlugin   = &Plugin{}
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PermitPlugin      = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
)

// New builds the plugin from the args of Coscheduling.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	inner, err := coscheduling.New(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	// With this gate the scheduler writes to every pod that waits at Permit which node it is to have. A gang is often rejected before it
	// sees its own writes, and then takes none of them back: the nodes stay promised to pods that hold nothing, and are lost to all others.
	if err := utilfeature.DefaultMutableFeatureGate.Set("NominatedNodeNameForExpectation=false"); err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	p := &Plugin{
		Coscheduling: inner.(*coscheduling.Coscheduling),
		pods:         handle.SharedInformerFactory().Core().V1().Pods().Lister(),
		nodes:        handle.SnapshotSharedLister(),
	}
	p.rests = newRests(clock.RealClock{}, func(gang string) bool {
		pods := p.waiting(gang)
		handle.Activate(logger, pods)
		return len(pods) > 0
	})
	return p, nil
}

// waiting returns the pods of a gang that have no node, by their keys.
func (p *Plugin) waiting(gang string) map[string]*v1.Pod {
	waiting := map[string]*v1.Pod{}
	namespace, name, err := cache.SplitMetaNamespaceKey(gang)
	if err != nil {
		return nil
	}
	pods, err := p.pods.Pods(namespace).List(labels.SelectorFromSet(labels.Set{v1alpha1.PodGroupLabel: name}))
	if err != nil {
		return nil
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			waiting[namespace+"/"+pod.Name] = pod
		}
	}
	return waiting
}

// PreFilter refuses the pods of a gang that rests, or that lacks pods.
func (p *Plugin) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	gang := kube.GangOf(pod)
	if gang == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if why, rests := p.rests.Resting(gang, pod.UID); rests {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	result, status := p.Coscheduling.PreFilter(ctx, cycle, pod, nodes)
	if !status.IsSuccess() {
		p.rests.Refused(gang)
	}
	return result, status
}

// PostFilter rejects the gang of a pod that found no node.
func (p *Plugin) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if gang := kube.GangOf(pod); gang != "" {
		if _, rests := p.rests.Resting(gang, pod.UID); !rests {
			p.rests.Unfit(gang, p.why(gang, pod, statuses))
		}
	}
	return p.Coscheduling.PostFilter(ctx, cycle, pod, statuses)
}

// Unreserve rejects the rest of the gang of a pod that lost its node before it was bound.
func (p *Plugin) Unreserve(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, node string) {
	if gang := kube.GangOf(pod); gang != "" {
		p.rests.Rejected(gang, pod.UID)
	}
	p.Coscheduling.Unreserve(ctx, cycle, pod, node)
}

// PostBind forgets that the gang ever waited.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if gang := kube.GangOf(pod); gang != "" {
		p.rests.Forget(gang)
	}
}

// why says what kept the pod off every node, as the scheduler's own message does.
func (p *Plugin) why(gang string, pod *v1.Pod, statuses fwk.NodeToStatusReader) string {
	nodes, err := p.nodes.NodeInfos().List()
	if err != nil {
		return err.Error()
	}
	counts := map[string]int{}
	for _, node := range nodes {
		for _, reason := range statuses.Get(node.Node().Name).Reasons() {
			counts[reason]++
		}
	}
	reasons := make([]string, 0, len(counts))
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		reasons = append(reasons, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return fmt.Sprintf("gang %s waits for a node for %s: 0/%d are available: %s", gang, pod.Name, len(nodes), strings.Join(reasons, ", "))
}
