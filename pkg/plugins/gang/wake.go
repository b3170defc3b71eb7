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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// EventsToRegister lists the events that can help a pod which Coscheduling refused. What it is that its gang lacks does not show on the
// pod: another of its pods found no node, and any plugin may have been the reason. So all events count, but those that cannot matter.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	podGroups := fwk.EventResource("podgroups.v1alpha1." + scheduling.GroupName)
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: podGroups, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: noted(afterPodGroup, p.rests.HappenedFirst)},
		{Event: fwk.ClusterEvent{Resource: fwk.WildCard, ActionType: fwk.All}, QueueingHintFn: noted(p.afterEvent, p.rests.Happened)},
	}, nil
}

// noted returns a hint that has a pod tried again if helps says so, and tells it of its gang.
func noted(helps func(pod *v1.Pod, oldObj, newObj any) bool, note func(gang string)) fwk.QueueingHintFn {
	return func(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
		if !helps(pod, oldObj, newObj) {
			return fwk.QueueSkip, nil
		}
		note(kube.GangOf(pod))
		return fwk.Queue, nil
	}
}

func afterPodGroup(pod *v1.Pod, _, newObj any) bool {
	group, ok := newObj.(metav1.Object)
	return !ok || group.GetNamespace()+"/"+group.GetName() == kube.GangOf(pod)
}

// afterEvent reports whether an event of any kind may help the pod.
func (p *Plugin) afterEvent(pod *v1.Pod, oldObj, newObj any) bool {
	// A PodGroup, of which afterPodGroup judges; no other kind comes like this.
	for _, object := range []any{oldObj, newObj} {
		if _, ok := object.(*unstructured.Unstructured); ok {
			return false
		}
	}
	before, wasPod := oldObj.(*v1.Pod)
	after, isPod := newObj.(*v1.Pod)
	switch {
	case !wasPod && !isPod:
		// Nodes, of which the framework tells only when something has changed that schedulers look at; and volumes, claims and what belongs
		// to them, of which every change counts.
		return true
	case !wasPod:
		// One more pod of the gang; or one that others may want to stand beside, or to be spread over.
		return kube.GangOf(after) == kube.GangOf(pod) || after.Spec.NodeName != "" && looksAtPods(pod)
	case !isPod:
		// A pod that still exists only lost a node that it had not got yet: that a gang is rejected helps neither it nor, for longer than
		// until the next, another one. Two gangs without room would wake each other for ever.
		return !p.waits(before)
	case after.UID == pod.UID:
		// Its status changes with every attempt.
		return !reflect.DeepEqual(before.Spec, after.Spec) || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	case after.Spec.NodeName == "":
		return false
	}
	// It starts to terminate, is released by its owner, asks for less, or has new labels that others look at.
	return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || !maps.Equal(before.Labels, after.Labels) ||
		!reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences) || !reflect.DeepEqual(requests(before), requests(after))
}

// looksAtPods reports whether where other pods stand can let the pod on a node.
func looksAtPods(pod *v1.Pod) bool {
	return pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil || len(pod.Spec.TopologySpreadConstraints) > 0
}

// waits reports whether the pod still exists and has no node.
func (p *Plugin) waits(pod *v1.Pod) bool {
	current, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	return !apierrors.IsNotFound(err) && (err != nil || current.UID == pod.UID && current.Spec.NodeName == "")
}

func requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
}
