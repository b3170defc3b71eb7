package gang

import (
	"context"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

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
