package execution

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

type outcome string

const (
	accepted outcome = "accepted"
	// gone: the pod was already gone or terminating.
	gone outcome = "gone"
	// refused: a PodDisruptionBudget currently allows no eviction.
	refused outcome = "disruption-budget"
	// blockedBySeveral: several PodDisruptionBudgets select the pod. The API server never evicts
	// such a pod.
	blockedBySeveral outcome = "several-disruption-budgets"
	// denied: the API server refuses the request and will refuse it again, because of RBAC or an
	// admission webhook or policy.
	denied outcome = "denied"
	// forbidden: the request was answered with 403 Forbidden. The cause may be an API server that
	// has just started and has not loaded the RBAC rules yet.
	forbidden outcome = "forbidden"
	// unclear: the action was planned on stale data, the API server is busy or unreachable, or the
	// result is unknown. The controller checks the pod again.
	unclear outcome = "unclear"
)

// evict evicts a pod through the eviction API. It reads the pod first, because the name may belong
// to a new pod with another UID. The API server would charge such an eviction to the
// PodDisruptionBudget before it refuses the UID, and the charge would last two minutes. Names
// within a ReplicaSet are unique, so a released pod needs no read, which saves requests in a mass
// reclaim.
func (e *Executor) evict(ctx context.Context, a migration.Action) (outcome, error) {
	pods := e.client.CoreV1().Pods(a.Pod.Namespace)
	if a.Method != migration.Surge {
		pod, err := pods.Get(ctx, a.Pod.Name, metav1.GetOptions{})
		if err != nil {
			return outcomeOf(err)
		}
		if pod.UID != a.Pod.UID || pod.DeletionTimestamp != nil {
			return gone, nil
		}
	}
	err := pods.EvictV1(safety.WithRemoval(ctx, a.Removal()), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: a.Pod.Namespace, Name: a.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(a.Pod.UID))},
	})
	switch {
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return refused, err
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
		// The text of Kubernetes' pkg/registry/core/pod/storage/eviction.go, because this error has
		// no cause or reason of its own.
		return blockedBySeveral, err
	}
	// A conflict is unclear: only a different UID means that the pod is gone, and the next attempt
	// checks it.
	return outcomeOf(err)
}

func outcomeOf(err error) (outcome, error) {
	switch {
	case err == nil:
		return accepted, nil
	case apierrors.IsNotFound(err):
		return gone, nil
	case refusal.Denied(err):
		return denied, err
	case apierrors.IsForbidden(err):
		return forbidden, err
	}
	return unclear, err
}

func (e *Executor) delete(ctx context.Context, a migration.Action) (outcome, error) {
	if a.Orphan {
		if wanted, err := e.isWanted(ctx, a.Pod); err != nil || wanted {
			return unclear, err
		}
	}
	if a.Method == migration.Delete && (a.Pod.Node != nil || workload.OfJob(a.Pod.Pod)) { // else it would only delay the replacement
		e.setDisruptionTarget(ctx, a)
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(a.Pod.UID))}
	if a.Grace != nil {
		seconds := int64(*a.Grace / time.Second)
		options.GracePeriodSeconds = &seconds
	}
	pods := e.client.CoreV1().Pods(a.Pod.Namespace)
	err := pods.Delete(safety.WithRemoval(ctx, a.Removal()), a.Pod.Name, options)
	if !apierrors.IsConflict(err) {
		return outcomeOf(err)
	}
	// A conflict means either a different UID or a concurrent update of the pod.
	if pod, again := pods.Get(ctx, a.Pod.Name, metav1.GetOptions{}); apierrors.IsNotFound(again) || again == nil && pod.UID != a.Pod.UID {
		return gone, nil
	}
	return unclear, err
}

// confirmNode returns an error for a removal whose cause is checked (safety.Rule), unless the node
// of the pod is as in the plan, according to the API server. The removals of a plan off a deleted
// node share one read, which is newer than their snapshot.
func (e *Executor) confirmNode(ctx context.Context, a migration.Action) error {
	if e.settings.Unchanged == nil || !safety.Rules[a.Removal().Cause].Checked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.shortTimeout())
	defer cancel()
	read := func() (bool, error) { return e.settings.Unchanged(ctx, a.Pod.Node.Node, a.Unreachable) }
	if a.Pod.Node == nil {
		shared, _ := e.deletedNodes.LoadOrStore(a.Pod.Spec.NodeName, sync.OnceValues(func() (bool, error) {
			return e.settings.Unchanged(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Pod.Spec.NodeName}}, false)
		}))
		read = shared.(func() (bool, error))
	}
	unchanged, err := read()
	if err == nil && !unchanged {
		err = errors.New("its node has changed, and the caches were late")
	}
	return err
}

// shortTimeout limits each request that precedes a deletion: it leaves time for the deletion if the
// request hangs.
func (e *Executor) shortTimeout() time.Duration {
	return min(e.settings.RequestTimeout/4, 2*time.Second)
}

// setDisruptionTarget sets the condition DisruptionTarget on a pod that is about to be deleted
// against its PodDisruptionBudget. The eviction API sets it too, and the podFailurePolicy of a Job
// reads it. The deletion does not depend on the condition, so an error is only logged, once.
func (e *Executor) setDisruptionTarget(ctx context.Context, a migration.Action) {
	if workload.Disrupted(a.Pod.Pod) {
		return
	}
	// The API server merges conditions by type. The UID prevents a patch of a later pod with the
	// same name.
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.Pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: spot.ReasonInterruption,
			Message: "spot-controller: " + a.Why, LastTransitionTime: metav1.NewTime(e.clock.Now()),
		}}},
	})
	if err == nil {
		patching, cancel := context.WithTimeout(ctx, e.shortTimeout())
		defer cancel()
		_, err = e.client.CoreV1().Pods(a.Pod.Namespace).Patch(
			patching, a.Pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		e.conditionError.Do(func() {
			klog.FromContext(ctx).Error(err, "Condition DisruptionTarget not set before a deletion; not logged again", "pod", klog.KObj(a.Pod))
		})
	}
}

// isWanted reports whether, according to the API server, an owner of a released pod still wants
// replicas: the Deployment that controls the pod, the ReplicaSet that the pod was released from, or
// another ReplicaSet of that name which selects the pod's original labels.
func (e *Executor) isWanted(ctx context.Context, pod *snapshot.Pod) (bool, error) {
	if by := metav1.GetControllerOfNoCopy(pod); by != nil && workload.IsDeployment(by) {
		d, err := e.client.AppsV1().Deployments(pod.Namespace).Get(ctx, by.Name, metav1.GetOptions{})
		if err == nil && d.UID == by.UID && migration.WantsPods(d) || err != nil && !apierrors.IsNotFound(err) {
			return true, err
		}
	}
	rs, err := e.client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, pod.Release.ReplicaSet, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return false, err
	}
	original := labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: pod.Release.Hash})
	return rs.DeletionTimestamp == nil && workload.Replicas(rs.Spec.Replicas) > 0 &&
		(rs.UID == pod.Release.ReplicaSetUID || workload.Selector(rs.Spec.Selector).Matches(original)), nil
}

// release removes a pod from its ReplicaSet in one request that changes label, annotation and
// controller.
func (e *Executor) release(ctx context.Context, a migration.Action) (outcome, error) {
	rs := a.Pod.Revision.ReplicaSet
	state, err := json.Marshal(snapshot.Release{
		ReplicaSet: rs.Name, ReplicaSetUID: rs.UID, Pod: a.Pod.UID, Hash: a.Pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
		Reason: string(a.Reason), ToSpot: a.ToSpot, At: e.clock.Now().UTC(),
	})
	if err != nil {
		return unclear, err
	}
	patch := workload.PodPatch{
		Labels:      map[string]*string{appsv1.DefaultDeploymentUniqueLabelKey: ptr.To(spot.ReleasedHash)},
		Annotations: map[string]*string{spot.ReleasedAnnotation: ptr.To(string(state))},
	}
	// The Deployment becomes the controller of the pod: the pod is deleted with the Deployment, no
	// other controller adopts the pod, and the disruption controller counts it. The ReplicaSet
	// remains an owner that does not control the pod. For an owner that was removed, the garbage
	// collector would send two requests. Without a Deployment, the ReplicaSet controller removes
	// its own reference.
	if d := metav1.GetControllerOfNoCopy(rs); d != nil && workload.IsDeployment(d) {
		patch.OwnerReferences = append(workload.WithController(a.Pod.OwnerReferences, ""), metav1.OwnerReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: ptr.To(true),
		})
	}
	return outcomeOf(Patch(safety.WithRemoval(ctx, a.Removal()), e.client, a.Pod.Pod, patch))
}

// protectedCost is the deletion cost of a restored pod that asked not to be disrupted. It is larger
// than that of pods in the floor. rebalance.DeletionCosts removes it.
const protectedCost = "2000"

// restore gives a pod back to its ReplicaSet, which then has one pod too many and deletes one,
// unready pods first, then the pod with the lowest deletion cost. Without a Deployment, the
// annotation stays until the ReplicaSet has adopted the pod, because a deleted ReplicaSet never
// would (planner.completeAlone). A ReplicaSet that is gone would not adopt the pod.
func (e *Executor) restore(ctx context.Context, a migration.Action) (outcome, error) {
	rs, err := e.client.AppsV1().ReplicaSets(a.Pod.Namespace).Get(ctx, a.Pod.Release.ReplicaSet, metav1.GetOptions{})
	if err != nil || rs.UID != a.Pod.Release.ReplicaSetUID || rs.DeletionTimestamp != nil {
		return unclear, err
	}
	patch := a.Pod.Release.Restoration(a.Pod.Pod)
	if _, exists := a.Pod.Annotations[v1.PodDeletionCost]; (!exists || a.Pod.HasControllerCost()) &&
		!workload.MayDisrupt(a.Pod.Pod, e.clock.Now()) {
		patch.Annotations[v1.PodDeletionCost], patch.Annotations[spot.DeletionCostAnnotation] = ptr.To(protectedCost), ptr.To(protectedCost)
	}
	return outcomeOf(Patch(ctx, e.client, a.Pod.Pod, patch))
}

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
