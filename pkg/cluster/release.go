package cluster

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// releaseOf returns what is known of pod's release, nil if it was not released. Where the annotation does not parse, the fields before the
// mistake count; a ReplicaSet that still owns the pod is always named.
func releaseOf(pod *v1.Pod) *Release {
	if !kube.Released(pod) {
		return nil
	}
	hash, hashed := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	release := &Release{}
	_ = json.Unmarshal([]byte(pod.Annotations[kube.ReleaseAnnotation]), release)
	if release.ReplicaSetUID == "" {
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.Kind == "ReplicaSet" {
			release.ReplicaSet, release.ReplicaSetUID = ref.Name, ref.UID
		}
	}
	if release.Hash == "" && hashed && hash != kube.ReleasedHash {
		release.Hash = hash
	}
	return release
}

// beforeRelease returns pod as its ReplicaSet made it; nil if it is not known which did.
func beforeRelease(pod *v1.Pod, release *Release) *v1.Pod {
	if release.ReplicaSet == "" || release.ReplicaSetUID == "" {
		return nil
	}
	before := *pod
	before.Labels = labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: release.Hash})
	before.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet",
		Name: release.ReplicaSet, UID: release.ReplicaSetUID, Controller: ptr.To(true),
	}}
	return &before
}
