package migration

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	refs := workload.WithController(pod.OwnerReferences, "")
	return append(refs, metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: deployment.Name, UID: deployment.UID, Controller: ptr.To(true),
	})
}
