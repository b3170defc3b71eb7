package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

const (
	// ReleaseAnnotation marks a released pod: the controller has removed it from its ReplicaSet,
	// and evicts it when its replacement is ready.
	ReleaseAnnotation = "spot-aware-scheduler.io/released"
	// ReleasedHash is the value of the label pod-template-hash on a released pod. No ReplicaSet
	// selects it.
	ReleasedHash = "released"
)

// Released reports whether the pod claims to be released, by ReleaseAnnotation or by ReleasedHash.
// Anyone who may write the pod can make this claim. Package cluster decides whether to trust it.
func Released(pod *v1.Pod) bool {
	_, annotated := pod.Annotations[ReleaseAnnotation]
	return annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == ReleasedHash
}
