// Package transform drops the fields of objects that no reader uses, before informers store the
// objects in their caches.
package transform

import (
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Trim is the cache.TransformFunc of all informers except the scheduler's pods (see PodTrimmer). It
// drops fields that no reader uses, before they occupy memory in the cache. Most owners in a
// cluster are ReplicaSets of past revisions, ten for each Deployment.
//
// Trim drops managedFields of every object. For owners of pods, it drops the labels, the conditions
// in the status, and the annotations except the project's own and the revision. It also drops the
// pod template, because each pod has its own copy. For a DaemonSet it retains only the selector,
// and for a Lease only the name and renewTime. All other fields remain: replica counts, selectors
// (kube-scheduler's PodTopologySpread reads them too), strategies and status. A new reader of a
// dropped field finds it missing in the tests as well, because their caches are trimmed too.
//
// Trim never changes an owner, map or slice that it is given. It returns an already trimmed object
// unchanged, because an informer calls it twice when it fills its cache. It also returns anything
// that is not an API object unchanged, such as cache.DeletedFinalStateUnknown.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.Deployment:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = v1.PodTemplateSpec{}, nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.StatefulSet:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Spec.VolumeClaimTemplates, t.Status.Conditions = v1.PodTemplateSpec{}, nil, nil
		return wholeIfEqual(o, &t), nil
	case *appsv1.DaemonSet: // only the selector is read
		t := appsv1.DaemonSet{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
		trimOwner(&t.ObjectMeta)
		t.Spec.Selector = o.Spec.Selector
		return wholeIfEqual(o, &t), nil
	case *v1.ReplicationController:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions = nil, nil
		return wholeIfEqual(o, &t), nil
	case *batchv1.Job:
		t := *o
		trimOwner(&t.ObjectMeta)
		t.Spec.Template, t.Status.Conditions, t.Status.UncountedTerminatedPods = v1.PodTemplateSpec{}, nil, nil
		return wholeIfEqual(o, &t), nil
	}
	// Leases and Nodes are trimmed in place, because the informer owns the object until Trim
	// returns. With 5,000 nodes, 500 Leases are renewed per second.
	if o, ok := obj.(*coordinationv1.Lease); ok {
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}
		o.Spec = coordinationv1.LeaseSpec{RenewTime: o.Spec.RenewTime}
		return o, nil
	}
	// A copy of each Node at every heartbeat would waste memory.
	if o, ok := obj.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// wholeIfEqual returns whole if trimmed is equal to it, and trimmed otherwise.
func wholeIfEqual[T any](whole, trimmed *T) *T {
	if reflect.DeepEqual(whole, trimmed) {
		return whole
	}
	return trimmed
}

// trimOwner drops the metadata of an owner that no reader uses.
func trimOwner(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Labels, m.Annotations = nil, nil, filterKeys(m.Annotations, isOwnAnnotation)
}

// RevisionAnnotation contains the revision number of a ReplicaSet of a Deployment.
const RevisionAnnotation = "deployment.kubernetes.io/revision"

func isOwnAnnotation(key string) bool {
	return key == RevisionAnnotation || strings.HasPrefix(key, spot.Domain)
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
