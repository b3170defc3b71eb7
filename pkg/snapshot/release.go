package snapshot

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// clockSkew is how far the clock of the controller that released a pod may be ahead. A release with
// a later time is not trusted, because it would never time out.
const clockSkew = time.Minute

// releaseOf returns the release that the pod claims. The claim is not trusted yet, because anyone
// who may write the pod can make it. release is nil if the pod claims no release, or if it
// contradicts its own claim; defect then describes the contradiction.
func releaseOf(pod *v1.Pod) (release *Release, defect string) {
	if !workload.Released(pod) {
		return nil, ""
	}
	if release, defect = workload.ReadRelease(pod); defect != "" {
		return nil, defect
	}
	hash, controller := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], metav1.GetControllerOfNoCopy(pod)
	switch {
	case !workload.PolicyApplies(pod):
		return nil, "it is a DaemonSet pod or a static pod, which cannot be released"
	case hash != spot.ReleasedHash && hash != release.Hash && hash != "" && !workload.ControlledByDeployment(pod):
		return nil, fmt.Sprintf("label %s is neither that of a released pod nor the original hash", appsv1.DefaultDeploymentUniqueLabelKey)
	case controller != nil && !workload.IsDeployment(controller) &&
		workload.KeyOf(pod.Namespace, controller) != releasedFrom(release, pod.Namespace):
		return nil, fmt.Sprintf("its controller is %s %s, not the ReplicaSet that it was released from", controller.Kind, controller.Name)
	}
	return release, ""
}

// releasedFrom returns the key of the ReplicaSet that a pod of the namespace was released from. The
// ReplicaSet must be in the pod's own namespace.
func releasedFrom(r *Release, namespace string) workload.OwnerKey {
	return workload.OwnerKey{Namespace: namespace, Group: appsv1.GroupName, Kind: "ReplicaSet", UID: r.ReplicaSetUID}
}

// beforeRelease returns the pod as its ReplicaSet created it.
func beforeRelease(pod *v1.Pod, release *Release) *v1.Pod {
	before := *pod
	before.Labels = labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: release.Hash})
	before.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet",
		Name: release.ReplicaSet, UID: release.ReplicaSetUID, Controller: new(true),
	}}
	return &before
}

// releaseDefect describes why the caches contradict the release that a pod claims; it is "" if the
// release is trusted. A pod whose release is not trusted is an ordinary pod.
//
// The ReplicaSet must be in the pod's own namespace and have the UID of the release. It must select
// the pod's original labels, but not its current labels. If a Deployment controls the pod, it must
// own the ReplicaSet, unless the ReplicaSet no longer has an owner. If no cache has the ReplicaSet
// any more, the Deployment must exist. The release is then trusted, but the pod has no revision.
//
// A pod without a controller was released from a ReplicaSet without a Deployment. If that
// ReplicaSet is gone, the release is trusted as well. Such a pod counts nowhere. The controller
// deletes it when the API server confirms that the ReplicaSet is gone, because no other controller
// would. A user who forges such a release loses only the forged pod.
func (c *census) releaseDefect(p *podFacts) string {
	release := p.release
	if release.At.After(c.now.Add(clockSkew)) {
		return "the time of its release is in the future"
	}
	rs, err := c.replicaSets.ReplicaSets(p.pod.Namespace).Get(release.ReplicaSet)
	exists := err == nil && rs.UID == release.ReplicaSetUID
	if by := metav1.GetControllerOfNoCopy(p.pod); by != nil && workload.IsDeployment(by) {
		deployment, err := c.deployments.Deployments(p.pod.Namespace).Get(by.Name)
		switch {
		case exists && metav1.GetControllerOfNoCopy(rs) != nil && c.deploymentOf(rs, by.UID) == nil, err != nil, deployment.UID != by.UID:
			return fmt.Sprintf("its controller is Deployment %s, which does not exist or does not own ReplicaSet %s", by.Name, release.ReplicaSet)
		}
	}
	if !exists {
		return c.contradiction(p.original)
	}
	selector := workload.Selector(rs.Spec.Selector)
	released := labels.Merge(p.pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: spot.ReleasedHash})
	if !selector.Matches(labels.Set(p.original.Labels)) || selector.Matches(released) {
		return fmt.Sprintf("ReplicaSet %s does not select the pod's original labels, or also selects released pods", rs.Name)
	}
	return ""
}

// succeeded returns the trusted release of a pod, and the pod before it. If the ReplicaSet was
// deleted and another has its name, as the Deployment controller creates it, the pod counts as
// released from that one. The new ReplicaSet must select the pod's original labels, and the
// controller of the pod, if it has one, must own the ReplicaSet.
func (c *census) succeeded(p *podFacts) (*Release, *v1.Pod) {
	rs, err := c.replicaSets.ReplicaSets(p.pod.Namespace).Get(p.release.ReplicaSet)
	by := metav1.GetControllerOfNoCopy(p.pod)
	if err != nil || rs.UID == p.release.ReplicaSetUID || !workload.Selector(rs.Spec.Selector).Matches(labels.Set(p.original.Labels)) ||
		by != nil && c.deploymentOf(rs, by.UID) == nil {
		return p.release, p.original
	}
	release := *p.release
	release.ReplicaSetUID = rs.UID
	return &release, beforeRelease(p.pod, &release)
}
