package failsafe

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Releases decides how the release of a pod ends without a controller.
type Releases struct {
	replicaSets appslisters.ReplicaSetLister
	deployments appslisters.DeploymentLister
	budgets     policylisters.PodDisruptionBudgetLister
}

// NewReleases returns Releases that read from the caches of factory.
func NewReleases(factory informers.SharedInformerFactory) *Releases {
	apps := factory.Apps().V1() // each Lister makes the factory start its informer
	return &Releases{apps.ReplicaSets().Lister(), apps.Deployments().Lister(), factory.Policy().V1().PodDisruptionBudgets().Lister()}
}

// End returns the change that ends the release of a pod, or why it cannot end now. If the
// ReplicaSet exists, patch gives it the pod back, and it treats the pod as usual. If the ReplicaSet
// is gone, patch is nil: the pod is deleted when its Deployment has all replicas without it and its
// budgets allow it. Without a Deployment such a pod remains, because the ReplicaSet may have been
// deleted without its pods.
func (r *Releases) End(pod *v1.Pod, release *workload.Release) (patch *workload.PodPatch, obstacle string) {
	rs, err := r.replicaSets.ReplicaSets(pod.Namespace).Get(release.ReplicaSet)
	switch {
	case err == nil && rs.DeletionTimestamp == nil && takesBack(rs, pod, release):
		if metav1.GetControllerOfNoCopy(pod) == nil && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == release.Hash {
			return nil, "its ReplicaSet has not adopted it yet"
		}
		return new(release.Restoration(pod)), ""
	case err == nil && rs.UID == release.ReplicaSetUID:
		return nil, "its ReplicaSet is being deleted, or does not select it"
	}
	return nil, r.needs(pod)
}

// EndRelease performs a change that End returned, on exactly this version of the pod.
func EndRelease(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, patch *workload.PodPatch) error {
	if patch != nil {
		return workload.PatchPod(ctx, client, pod, *patch)
	}
	return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
}

// restore ends the release of a pod, and reports whether it sent a request.
func (r *Withdrawer) restore(ctx context.Context, pod *v1.Pod, release *workload.Release) bool {
	patch, obstacle := r.releases.End(pod, release)
	if obstacle != "" {
		return false
	}
	reason, note := spot.ReasonRestored, "it was given back to ReplicaSet "+release.ReplicaSet
	if patch == nil {
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cause", "obsolete", "podUID", pod.UID)) // as the controller logs
		reason, note = spot.ReasonOrphan, "it was deleted, because its ReplicaSet is gone and its Deployment has all replicas"
	}
	r.report(ctx, pod, EndRelease(ctx, r.client, pod, patch), reason, "Restore", note)
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

// needs returns why a pod whose ReplicaSet is gone must remain. It returns "" if a Deployment
// controls the pod and has all its replicas without it, and every PodDisruptionBudget that selects
// the pod allows a disruption.
func (r *Releases) needs(pod *v1.Pod) string {
	if !workload.ControlledByDeployment(pod) {
		return "its ReplicaSet is gone, and no Deployment controls it"
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	d, err := r.deployments.Deployments(pod.Namespace).Get(owner.Name)
	if err != nil || d.UID != owner.UID || d.Status.ObservedGeneration < d.Generation ||
		int(d.Status.AvailableReplicas) < workload.Replicas(d.Spec.Replicas) {
		return "its ReplicaSet is gone, and its Deployment is gone too or lacks available replicas"
	}
	budgets, _ := r.budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything()) // a cache returns no error
	if slices.ContainsFunc(budgets, func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed == 0 && workload.Selector(b.Spec.Selector).Matches(labels.Set(pod.Labels))
	}) {
		return "its ReplicaSet is gone, and a PodDisruptionBudget allows no disruption"
	}
	return ""
}
