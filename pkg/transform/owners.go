// Package transform drops the fields of objects that no reader uses, before informers store the
// objects in their caches.
package transform

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Trim is the cache.TransformFunc of the informers that have no PodTrimmer, NodeTrimmer or
// FailedPod. It drops fields that no reader uses, before they occupy memory in the cache. Most
// owners in a cluster are ReplicaSets of past revisions, ten for each Deployment.
//
// Trim drops managedFields of every object. For owners of pods, it drops the labels, the conditions
// in the status, and the annotations except the project's own and the annotations of revisions
// (providers.RevisionControllers). Of the pod template it retains only what needsOf returns, and
// only while the owner has pods: each pod has its own copy of the rest. For a DaemonSet it retains
// only the selector, and for a Lease only the name and renewTime. All other fields remain: replica
// counts, selectors (kube-scheduler's PodTopologySpread reads them too), strategies and status. A
// new reader of a dropped field finds it missing in the tests as well, because their caches are
// trimmed too.
//
// Trim never changes an owner, map or slice that it is given. It returns an already trimmed object
// unchanged, because an informer calls it twice when it fills its cache. It also returns anything
// that is not an API object unchanged, such as cache.DeletedFinalStateUnknown.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = needsOf(&o.Spec.Template, ptr.Deref(o.Spec.Replicas, 1) > 0), nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.Deployment:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.StatefulSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Spec.VolumeClaimTemplates, t.Status.Conditions = needsOf(&o.Spec.Template, true), nil, nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.DaemonSet: // only the selector is read
		t := appsv1.DaemonSet{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
		trimOwner(&t.ObjectMeta)
		t.Spec.Selector = o.Spec.Selector
		return wholeIfEqual(o, &t), nil
	case *v1.ReplicationController:
		t := *o
		trimOwner(&t.ObjectMeta)
		if t.Status.Conditions = nil; o.Spec.Template != nil {
			t.Spec.Template = new(needsOf(o.Spec.Template, ptr.Deref(o.Spec.Replicas, 1) > 0))
		}
		return wholeIfEqual(o, &t), nil
	case *batchv1.Job:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions, t.Status.UncountedTerminatedPods = needsOf(&o.Spec.Template, o.Status.Active > 0), nil, nil
		return wholeIfEqual(o, &t), nil
	}
	// Other objects are trimmed in place, because the informer owns the object until Trim returns.
	// With 5,000 nodes, 500 Leases are renewed per second.
	if o, ok := obj.(*coordinationv1.Lease); ok {
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}
		o.Spec = coordinationv1.LeaseSpec{RenewTime: o.Spec.RenewTime}
		return o, nil
	}
	if o, ok := obj.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// needsOf returns what a template states for a new pod: the resources, and spec.nodeName. Without
// used it returns an empty template.
func needsOf(t *v1.PodTemplateSpec, used bool) (needs v1.PodTemplateSpec) {
	if !used {
		return needs
	}
	s := t.Spec
	DefaultRequests(&s)
	resourcesOf := func(containers []v1.Container) (all []v1.Container) {
		for _, c := range containers {
			all = append(all, v1.Container{RestartPolicy: c.RestartPolicy,
				Resources: v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}})
		}
		return all
	}
	needs.Spec = v1.PodSpec{NodeName: s.NodeName, Overhead: s.Overhead, Containers: resourcesOf(s.Containers),
		InitContainers: resourcesOf(s.InitContainers)}
	if s.Resources != nil {
		needs.Spec.Resources = &v1.ResourceRequirements{Requests: s.Resources.Requests, Limits: s.Resources.Limits}
	}
	return needs
}

// DefaultRequests sets the requests that the API server sets in a pod with this specification. It
// ignores LimitRanges, and replaces the slices and maps that it changes.
func DefaultRequests(spec *v1.PodSpec) {
	spec.Containers, spec.InitContainers = slices.Clone(spec.Containers), slices.Clone(spec.InitContainers)
	for _, list := range [][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			list[i].Resources.Requests = WithDefaults(list[i].Resources.Requests, list[i].Resources.Limits)
		}
	}
	if spec.Resources != nil && len(spec.Resources.Limits) > 0 { // pod-level resources replace the containers' resources
		whole := *spec.Resources
		parts := resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
		whole.Requests = WithDefaults(WithDefaults(whole.Requests, parts), whole.Limits)
		spec.Resources = &whole
	}
}

// WithDefaults returns requests, and others for the resources that requests does not contain.
func WithDefaults(requests, others v1.ResourceList) v1.ResourceList {
	if len(others) == 0 {
		return requests
	}
	all := maps.Clone(others)
	maps.Copy(all, requests)
	return all
}

func wholeIfEqual[T any](whole, trimmed *T) *T {
	if reflect.DeepEqual(whole, trimmed) {
		return whole
	}
	return trimmed
}

func trimOwner(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Labels, m.Annotations = nil, nil, filterKeys(m.Annotations, isOwnAnnotation)
}

// isOwnAnnotation reports whether the key is the project's own, or one that a controller writes on
// the ReplicaSets of its revisions.
func isOwnAnnotation(key string) bool {
	return strings.HasPrefix(key, spot.Domain) ||
		slices.ContainsFunc(providers.RevisionControllers, func(c providers.RevisionController) bool {
			return key == c.Revision || key == c.Desired
		})
}

// filterKeys returns the entries of the map whose keys keep accepts. It returns the map itself if
// keep accepts all, and a new map otherwise.
func filterKeys(all map[string]string, keep func(key string) bool) map[string]string {
	kept := make(map[string]string, 1)
	for key, value := range all {
		if keep(key) {
			kept[key] = value
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case len(all):
		return all
	}
	return kept
}
