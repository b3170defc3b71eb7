package kube

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim is the cache.TransformFunc of all informers: it drops what nobody reads, before it takes memory for as long as the object exists.
// Most of what a cluster has of owners are ReplicaSets of past revisions, ten for each Deployment.
//
// Of every object it drops managedFields. Of those that own pods it drops labels, annotations except the project's own and the revision,
// and pod templates, of which a pod has its own copy. All else is kept: replica counts, selectors, which kube-scheduler's PodTopologySpread
// reads too, strategies, and status except conditions. A new reader of what is dropped sees it missing in the tests, whose caches are
// trimmed, too.
//
// Trim never changes maps, slices or an owner that it is given, and does nothing to what it has returned before. What is no API object,
// such as cache.DeletedFinalStateUnknown, is returned as it is.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return &t, nil
	case *appsv1.Deployment:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return &t, nil
	case *appsv1.StatefulSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Spec.VolumeClaimTemplates, t.Status.Conditions = v1.PodTemplateSpec{}, nil, nil
		return &t, nil
	case *v1.ReplicationController:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = nil, nil
		return &t, nil
	case *batchv1.Job:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions, t.Status.UncountedTerminatedPods = v1.PodTemplateSpec{}, nil, nil
		return &t, nil
	}
	// A copy of each Node at every heartbeat would be waste: the informer has the object to itself until this returns.
	if o, ok := obj.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// trimOwner drops what is not read of an owner's metadata.
func trimOwner(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Labels, m.Annotations = nil, nil, ownAnnotations(m.Annotations)
}

const (
	annotationDomain   = "spot-aware-scheduler.io/"
	revisionAnnotation = "deployment.kubernetes.io/revision"
)

// ownAnnotations returns those that this project reads, in a new map unless these are all.
func ownAnnotations(all map[string]string) map[string]string {
	own := make(map[string]string, 1)
	for key, value := range all {
		if key == revisionAnnotation || strings.HasPrefix(key, annotationDomain) {
			own[key] = value
		}
	}
	switch len(own) {
	case 0:
		return nil
	case len(all):
		return all
	}
	return own
}
