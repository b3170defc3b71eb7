package failsafe

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// restore ends the release of a pod, and reports whether it sent a request. If the ReplicaSet
// exists, it gets the pod back, and treats it as usual. If the ReplicaSet is gone, the pod is
// deleted when its Deployment has all replicas without it and its budgets allow it. Without a
// Deployment such a pod remains, because the ReplicaSet may have been deleted without its pods.
func (r *Withdrawer) restore(ctx context.Context, pod *v1.Pod, release *workload.Release) bool {
	rs, err := r.replicaSets.ReplicaSets(pod.Namespace).Get(release.ReplicaSet)
	var reason, note string
	switch {
	case err == nil && rs.DeletionTimestamp == nil && takesBack(rs, pod, release):
		err = workload.PatchPod(ctx, r.client, pod, release.Restoration(pod))
		reason, note = spot.ReasonRestored, "it was given back to ReplicaSet "+rs.Name
	case err == nil && rs.UID == release.ReplicaSetUID, !r.servesWithout(pod):
		return false
	default:
		uid := pod.UID
		err = r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &pod.ResourceVersion},
		})
		reason, note = spot.ReasonOrphan, "it was deleted, because its ReplicaSet is gone and its Deployment has all replicas"
	}
	r.report(ctx, pod, err, reason, "Restore", note)
	return true
}

// takesBack reports whether rs controls or adopts the pod after its restoration. A ReplicaSet that
// was deleted without its pods and created again has another UID. It can adopt the pod when the
// garbage collector has removed the reference to the old one.
func takesBack(rs *appsv1.ReplicaSet, pod *v1.Pod, release *workload.Release) bool {
	original := labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: release.Hash})
	stale := rs.UID != release.ReplicaSetUID &&
		slices.ContainsFunc(pod.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == release.ReplicaSetUID })
	return !stale && workload.Selector(rs.Spec.Selector).Matches(original)
}

// servesWithout reports whether a Deployment controls the pod and has all its replicas without it,
// and every PodDisruptionBudget that selects the pod allows a disruption.
func (r *Withdrawer) servesWithout(pod *v1.Pod) bool {
	if !workload.ControlledByDeployment(pod) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	d, err := r.deployments.Deployments(pod.Namespace).Get(owner.Name)
	if err != nil || d.UID != owner.UID || d.Status.ObservedGeneration < d.Generation ||
		int(d.Status.AvailableReplicas) < workload.Replicas(d.Spec.Replicas) {
		return false
	}
	budgets, _ := r.budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	return !slices.ContainsFunc(budgets, func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed == 0 && workload.Selector(b.Spec.Selector).Matches(labels.Set(pod.Labels))
	})
}
