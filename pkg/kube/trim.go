package kube

import (
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim is the cache.TransformFunc of informers, except those of a scheduler's pods (PodTrimmer): it drops fields that no reader uses, before it takes memory for as long as the object exists.
// Most of what a cluster has of owners are ReplicaSets of past revisions, ten for each Deployment.
//
// Of every object it drops managedFields. Of those that own pods it drops labels, annotations except the project's own and the revision,
// and pod templates, of which a pod has its own copy. Of a DaemonSet it keeps only the selector, of a Lease the name and renewTime. All
// else is kept: replica counts, selectors, which kube-scheduler's PodTopologySpread reads too, strategies, and status except conditions. A
// new reader of what is dropped sees it missing in the tests, whose caches are trimmed, too.
//
// Trim never changes an owner that it is given, nor maps and slices. It returns what it has returned before as it is: an informer that fills
// its cache asks twice. So it does with what is no API object, such as cache.DeletedFinalStateUnknown.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return changed(o, &t), nil
	case *appsv1.Deployment:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return changed(o, &t), nil
	case *appsv1.StatefulSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Spec.VolumeClaimTemplates, t.Status.Conditions = v1.PodTemplateSpec{}, nil, nil
		return changed(o, &t), nil
	case *appsv1.DaemonSet: // only its selector is read
		t := appsv1.DaemonSet{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
		trimOwner(&t.ObjectMeta)
		t.Spec.Selector = o.Spec.Selector
		return changed(o, &t), nil
	case *v1.ReplicationController:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = nil, nil
		return changed(o, &t), nil
	case *batchv1.Job:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions, t.Status.UncountedTerminatedPods = v1.PodTemplateSpec{}, nil, nil
		return changed(o, &t), nil
	}
	// The same holds for Leases: there are 500 renewals a second with 5,000 nodes.
	if o, ok := obj.(*coordinationv1.Lease); ok {
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}
		o.Spec = coordinationv1.LeaseSpec{RenewTime: o.Spec.RenewTime}
		return o, nil
	}
	// A copy of each Node at every heartbeat would be waste: the informer has the object to itself until this returns.
	if o, ok := obj.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// changed returns trimmed, but whole if that is no different.
func changed[T any](whole, trimmed *T) *T {
	if reflect.DeepEqual(whole, trimmed) {
		return whole
	}
	return trimmed
}

// trimOwner drops what is not read of an owner's metadata.
func trimOwner(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Labels, m.Annotations = nil, nil, only(m.Annotations, isOwnAnnotation)
}

const (
	annotationDomain   = "spot-aware-scheduler.io/"
	revisionAnnotation = "deployment.kubernetes.io/revision"
)

func isOwnAnnotation(key string) bool {
	return key == revisionAnnotation || strings.HasPrefix(key, annotationDomain)
}

// only returns the entries of a map whose keys keep reports, in a new map unless these are all.
func only(all map[string]string, keep func(key string) bool) map[string]string {
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
