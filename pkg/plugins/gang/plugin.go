// Package gang extends the Coscheduling plugin of scheduler-plugins, which schedules the pods of a
// PodGroup all together or not at all. It adds retries: the scheduler tries a gang again after an
// event that may help it, and does not try it repeatedly without one.
package gang

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Name is the plugin's name in a KubeSchedulerConfiguration. It equals the name of the plugin that
// it replaces.
const Name = coscheduling.Name

// Plugin is Coscheduling for one profile.
type Plugin struct {
	*coscheduling.Coscheduling
	pods     corelisters.PodLister
	nodes    fwk.SharedLister
	backoffs *backoffs
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
	// With this feature gate the scheduler writes the expected node to every pod that waits at
	// Permit. A gang is often rejected before the scheduler sees these writes, and then it clears
	// no nomination. The nodes stay nominated for pods that do not use them, and no other pod can
	// use them.
	if err := utilfeature.DefaultMutableFeatureGate.Set("NominatedNodeNameForExpectation=false"); err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name)
	p := &Plugin{
		Coscheduling: inner.(*coscheduling.Coscheduling),
		pods:         handle.SharedInformerFactory().Core().V1().Pods().Lister(),
		nodes:        handle.SnapshotSharedLister(),
	}
	reject := func(gang string) {
		handle.IterateOverWaitingPods(func(pod fwk.WaitingPod) {
			if workload.PodGroupOf(pod.GetPod()) == gang {
				pod.Reject(Name, "the PodGroup has changed")
			}
		})
	}
	p.backoffs = newBackoffs(clock.RealClock{}, reject, func(gang string) bool {
		pods := p.waiting(gang)
		handle.Activate(logger, pods)
		return len(pods) > 0
	})
	return p, nil
}

// waiting returns the pods of a gang without a node, by their keys.
func (p *Plugin) waiting(gang string) map[string]*v1.Pod {
	waiting := map[string]*v1.Pod{}
	namespace, name, _ := strings.Cut(gang, "/")
	pods, _ := p.pods.Pods(namespace).List(labels.SelectorFromSet(labels.Set{v1alpha1.PodGroupLabel: name})) // a cache returns no error
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			waiting[namespace+"/"+pod.Name] = pod
		}
	}
	return waiting
}

// PreFilter refuses the pods of a gang that pauses or lacks pods.
func (p *Plugin) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	gang := workload.PodGroupOf(pod)
	if gang == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if why, paused := p.paused(gang, cycle, pod); paused {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	result, status := p.Coscheduling.PreFilter(ctx, cycle, pod, nodes)
	if !status.IsSuccess() {
		p.backoffs.Refused(gang)
	}
	return result, status
}

// paused reports whether the gang pauses, and why. The pause ends if a change that no hint reports
// may have unblocked the pod.
func (p *Plugin) paused(gang string, cycle fwk.CycleState, pod *v1.Pod) (why string, paused bool) {
	if s := placement.Read(cycle); s != nil && s.Unblocked {
		p.backoffs.EventSeen(gang)
	}
	return p.backoffs.Paused(gang, pod.UID)
}

// PostFilter rejects the gang of a pod that found no node.
func (p *Plugin) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod,
	statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if gang := workload.PodGroupOf(pod); gang != "" {
		if _, paused := p.backoffs.Paused(gang, pod.UID); !paused {
			p.backoffs.NoNode(gang, p.why(gang, pod, statuses))
		}
	}
	return p.Coscheduling.PostFilter(ctx, cycle, pod, statuses)
}

// Unreserve rejects the other pods of the gang if a pod lost its node before it was bound.
func (p *Plugin) Unreserve(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, node string) {
	if gang := workload.PodGroupOf(pod); gang != "" {
		p.backoffs.Rejected(gang, pod.UID)
	}
	p.Coscheduling.Unreserve(ctx, cycle, pod, node)
}

// PostBind removes the record of the gang's refusals.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if gang := workload.PodGroupOf(pod); gang != "" {
		p.backoffs.Forget(gang)
	}
}

// why returns the reasons of the nodes in the format of the scheduler's own message.
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

// EventsToRegister lists the events that can help a pod that Coscheduling refused. The pod does not
// show what its gang lacks: another pod of the gang found no node, and any plugin may be the
// reason. So all events count, except events that cannot help.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	podGroups := fwk.EventResource("podgroups.v1alpha1." + scheduling.GroupName)
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: podGroups, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: p.podGroupHint},
		{Event: fwk.ClusterEvent{Resource: fwk.WildCard, ActionType: fwk.All}, QueueingHintFn: p.eventHint},
	}, nil
}

// podGroupHint retries a pod after a change of its PodGroup.
func (p *Plugin) podGroupHint(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	gang := workload.PodGroupOf(pod)
	before, _ := oldObj.(metav1.Object)
	after, _ := newObj.(metav1.Object)
	if after != nil && after.GetNamespace()+"/"+after.GetName() != gang {
		return fwk.QueueSkip, nil
	}
	// The API server counts changes of the spec. Changes of the status do not matter.
	p.backoffs.PodGroupSeen(gang, before != nil && after != nil && before.GetGeneration() != after.GetGeneration())
	return fwk.Queue, nil
}

// eventHint retries a pod after an event of any other kind that may help it.
func (p *Plugin) eventHint(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	if !p.afterEvent(pod, oldObj, newObj) {
		return fwk.QueueSkip, nil
	}
	p.backoffs.EventSeen(workload.PodGroupOf(pod))
	return fwk.Queue, nil
}

// afterEvent reports whether an event of any kind may help the pod.
func (p *Plugin) afterEvent(pod *v1.Pod, oldObj, newObj any) bool {
	// This is a PodGroup, which podGroupHint handles. No other kind is unstructured.
	for _, object := range []any{oldObj, newObj} {
		if _, ok := object.(*unstructured.Unstructured); ok {
			return false
		}
	}
	before, wasPod := oldObj.(*v1.Pod)
	after, isPod := newObj.(*v1.Pod)
	switch {
	case !wasPod && !isPod:
		// These are nodes, volumes, claims and related objects. The framework reports a node only
		// if a scheduling-relevant field changed. Every change of the other kinds counts.
		return true
	case !wasPod:
		// This is one more pod of the gang, or a pod that matters for affinity or spreading.
		return workload.PodGroupOf(after) == workload.PodGroupOf(pod) || after.Spec.NodeName != "" && dependsOnPods(pod)
	case !isPod:
		// If the pod still exists, it only lost an assumed node, because its gang was rejected.
		// That does not help the gang, and helps another gang only until the next attempt. Two
		// gangs without room would wake each other without end.
		return !p.waits(before)
	case after.UID == pod.UID:
		// Every attempt changes the pod's status.
		return !reflect.DeepEqual(before.Spec, after.Spec) || !maps.Equal(before.Labels, after.Labels) ||
			!maps.Equal(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	case after.Spec.NodeName == "":
		return false
	}
	// The pod starts to terminate, loses its owner, requests less, or has new labels that affinity
	// or spreading of other pods may match.
	return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || !maps.Equal(before.Labels, after.Labels) ||
		!reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences) || !reflect.DeepEqual(requests(before), requests(after))
}

func dependsOnPods(pod *v1.Pod) bool {
	return pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil || len(pod.Spec.TopologySpreadConstraints) > 0
}

func (p *Plugin) waits(pod *v1.Pod) bool {
	current, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	return !apierrors.IsNotFound(err) && (err != nil || current.UID == pod.UID && current.Spec.NodeName == "")
}

func requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
}
