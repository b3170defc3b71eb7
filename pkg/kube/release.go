package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

const (
	// ReleaseAnnotation is the annotation that makes a pod a released one: the controller has taken it out of its ReplicaSet, to leave when
	// its replacement is ready.
	ReleaseAnnotation = "spot-aware-scheduler.io/released"
	// ReleasedHash is what the label pod-template-hash of a released pod says: no ReplicaSet selects it.
	ReleasedHash = "released"
)

// Released reports whether pod claims to have been released, by ReleaseAnnotation or by ReleasedHash. Anybody who may write the pod can make
// the claim: package cluster decides whether it is trusted.
func Released(pod *v1.Pod) bool {
	_, annotated := pod.Annotations[ReleaseAnnotation]
	return annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == ReleasedHash
}
