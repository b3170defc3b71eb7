package migration

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// ownersReleased returns the owner references of a pod of rs once it is released. The Deployment is
// its controller then: the pod is deleted with it, no other controller adopts the pod, and the
// disruption controller counts it. ReplicaSet rs remains an owner that does not control the pod. For
// an owner that was removed the garbage collector would ask the API server twice.
//
// It returns nil if no Deployment controls rs: then the ReplicaSet controller removes its reference.
func ownersReleased(pod *cluster.Pod, rs *appsv1.ReplicaSet) []metav1.OwnerReference {
	deployment := metav1.GetControllerOfNoCopy(rs)
	if deployment == nil || !kube.IsDeployment(deployment) {
		return nil
	}
	refs := withController(pod.OwnerReferences, "")
	return append(refs, metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: deployment.Name, UID: deployment.UID, Controller: ptr.To(true),
	})
}

// ownersRestored returns the owner references of a released pod once it is given back to rs.
func ownersRestored(pod *cluster.Pod, rs types.UID) []metav1.OwnerReference {
	deployment := metav1.GetControllerOfNoCopy(pod)
	refs := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == deployment.UID })
	return withController(refs, rs)
}

// withController returns refs with the first that has this UID as the only controller, none for "".
// What else they say stays, also an explicit "controller: false": the admission policy compares it.
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

// heldByDeployment reports whether a Deployment is the controller of a released pod.
func heldByDeployment(pod *cluster.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && kube.IsDeployment(controller)
}
