package migration

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// releasedOwners returns the owner references of a pod of rs after its release. The Deployment
// becomes its controller: the pod is deleted with the Deployment, no other controller adopts the
// pod, and the disruption controller counts it. ReplicaSet rs remains an owner that does not
// control the pod. For an owner that was removed, the garbage collector would send two requests.
//
// It returns nil if no Deployment controls rs. In that case the ReplicaSet controller removes its
// own reference.
func releasedOwners(pod *snapshot.Pod, rs *appsv1.ReplicaSet) []metav1.OwnerReference {
	deployment := metav1.GetControllerOfNoCopy(rs)
	if deployment == nil || !workload.IsDeployment(deployment) {
		return nil
	}
	refs := withController(pod.OwnerReferences, "")
	return append(refs, metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: deployment.Name, UID: deployment.UID, Controller: ptr.To(true),
	})
}

// restoredOwners returns the owner references of a released pod after it is given back to rs.
func restoredOwners(pod *snapshot.Pod, rs types.UID) []metav1.OwnerReference {
	deployment := metav1.GetControllerOfNoCopy(pod)
	refs := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == deployment.UID })
	return withController(refs, rs)
}

// withController returns refs in which only the first reference with this UID is a controller; none
// if the UID is "". Other fields stay unchanged, including an explicit "controller: false", because
// the admission policy compares them.
func withController(refs []metav1.OwnerReference, controller types.UID) []metav1.OwnerReference {
	refs = slices.Clone(refs)
	for i := range refs {
		if ptr.Deref(refs[i].Controller, false) {
			refs[i].Controller = nil
		}
	}
	if i := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == controller }); i >= 0 && controller != "" {
		refs[i].Controller = ptr.To(true)
	}
	return refs
}

// controlledByDeployment reports whether a Deployment is the controller of a released pod.
func controlledByDeployment(pod *snapshot.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && workload.IsDeployment(controller)
}
