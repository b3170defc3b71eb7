package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// clockSkew is how far the clock of the controller that released a pod may be ahead. A release with a later time would never time out.
const clockSkew = time.Minute

// releaseOf returns the release that the pod claims. The claim is not trusted yet: anybody who may write the pod can make it. wrong says why
// the pod itself contradicts it; then, and if the pod claims no release, release is nil.
func releaseOf(pod *v1.Pod) (release *Release, wrong string) {
	if !kube.Released(pod) {
		return nil, ""
	}
	text, ok := pod.Annotations[kube.ReleaseAnnotation]
	if !ok {
		return nil, "it has the label of a release without the annotation"
	}
	release = &Release{}
	if err := json.Unmarshal([]byte(text), release); err != nil {
		return nil, fmt.Sprintf("annotation %s does not parse: %v", kube.ReleaseAnnotation, err)
	}
	hash, controller := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], metav1.GetControllerOfNoCopy(pod)
	switch {
	case !kube.HasOpinion(pod):
		return nil, "it belongs to its node: nothing releases such a pod"
	case release.ReplicaSet == "" || release.ReplicaSetUID == "" || release.Hash == "" || release.Hash == kube.ReleasedHash:
		return nil, fmt.Sprintf("annotation %s does not name a ReplicaSet, its UID and a hash", kube.ReleaseAnnotation)
	case hash != kube.ReleasedHash && hash != release.Hash:
		return nil, fmt.Sprintf("label %s is neither that of a released pod nor the hash that it had", appsv1.DefaultDeploymentUniqueLabelKey)
	case controller != nil && !kube.IsDeployment(controller) && kube.KeyOf(pod.Namespace, controller) != release.from(pod.Namespace):
		return nil, fmt.Sprintf("its controller is %s %s, not the ReplicaSet that it was released from", controller.Kind, controller.Name)
	}
	return release, ""
}

// from returns the key of the ReplicaSet that a pod of that namespace was released from. Only one in the pod's own namespace counts.
func (r *Release) from(namespace string) kube.OwnerKey {
	return kube.OwnerKey{Namespace: namespace, Group: appsv1.GroupName, Kind: "ReplicaSet", UID: r.ReplicaSetUID}
}

// beforeRelease returns pod as its ReplicaSet made it.
func beforeRelease(pod *v1.Pod, release *Release) *v1.Pod {
	before := *pod
	before.Labels = labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: release.Hash})
	before.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet",
		Name: release.ReplicaSet, UID: release.ReplicaSetUID, Controller: ptr.To(true),
	}}
	return &before
}

// distrust says why the release that a pod claims cannot be true by what the caches hold; "" if it is trusted. A pod with a release that is
// not trusted is an ordinary pod.
//
// The ReplicaSet must be in the pod's own namespace, with its UID, and must select the pod as it was, but not as it is. A Deployment that
// controls the pod must be that of the ReplicaSet, unless that has left its Deployment since. If no cache has the ReplicaSet any more, that Deployment must exist: the release is trusted,
// but with nothing to release from.
//
// A pod without a controller was released from a ReplicaSet without a Deployment. If that is gone, the release is trusted as well: such a pod
// counts nowhere, and the controller deletes it once the API server confirms that the ReplicaSet is gone. Nobody else would. Who forges that
// loses the pod that he wrote the annotation on, and harms nobody else.
func (c *census) distrust(p *knownPod) string {
	release := p.release
	if release.At.After(c.now.Add(clockSkew)) {
		return "the time of its release is in the future"
	}
	rs, err := c.replicaSets.ReplicaSets(p.pod.Namespace).Get(release.ReplicaSet)
	known := err == nil && rs.UID == release.ReplicaSetUID
	if by := metav1.GetControllerOfNoCopy(p.pod); by != nil && kube.IsDeployment(by) {
		deployment, err := c.deployments.Deployments(p.pod.Namespace).Get(by.Name)
		switch {
		case known && metav1.GetControllerOfNoCopy(rs) != nil && c.deploymentOf(rs, by.UID) == nil, err != nil, deployment.UID != by.UID:
			return fmt.Sprintf("its controller is Deployment %s, which does not exist or is not that of ReplicaSet %s", by.Name, release.ReplicaSet)
		}
	}
	if !known {
		return c.contradiction(p.before)
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	released := labels.Merge(p.pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: kube.ReleasedHash})
	if err != nil || !selector.Matches(labels.Set(p.before.Labels)) || selector.Matches(released) {
		return fmt.Sprintf("ReplicaSet %s does not select a pod with its labels, or also selects released ones", rs.Name)
	}
	return ""
}
