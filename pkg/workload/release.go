package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Released reports whether the pod claims to be released, by ReleaseAnnotation or by ReleasedHash.
// Anyone who may write the pod can make this claim. Package snapshot decides whether to trust it.
func Released(pod *v1.Pod) bool {
	_, annotated := pod.Annotations[spot.ReleasedAnnotation]
	return annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == spot.ReleasedHash
}
