package execution

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Patch changes a pod, unless it has changed since it was planned for.
func Patch(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, patch workload.PodPatch) error {
	return workload.PatchPod(ctx, client, pod, patch)
}

// DeletePending deletes a pod that never ran, unless it has changed, for example because it was
// bound.
func DeletePending(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) error {
	ctx = safety.WithRemoval(ctx, safety.Removal{Cause: safety.Pending, Pod: pod.UID, Namespace: pod.Namespace, Starts: true})
	return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
}

// Performed reports whether the API server has performed the request that returned err, as far as
// this is known: the answer may be lost. done reports it for the current pod, if that exists.
func Performed(
	ctx context.Context, client kubernetes.Interface, pod *v1.Pod, err error, done func(*v1.Pod) bool,
) (performed, known bool) {
	if err == nil {
		return true, true
	}
	lost := []metav1.StatusReason{
		metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError,
	}
	if !slices.Contains(lost, apierrors.ReasonForError(err)) {
		return false, true
	}
	current, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err), apierrors.IsNotFound(err)
	}
	return current.UID != pod.UID || done(current), true
}
