package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// outcome is what came of an action.
type outcome string

const (
	// accepted: the API server has done it.
	accepted outcome = "accepted"
	// overtaken: the pod is gone, or was leaving before.
	overtaken outcome = "overtaken"
	// refused: a PodDisruptionBudget does not allow the eviction now.
	refused outcome = "budget"
	// barred: several PodDisruptionBudgets match the pod, and the API server evicts none such.
	barred outcome = "several-budgets"
	// denied: the API server refuses to have the pod released, and will again: a role or an admission policy says so.
	denied outcome = "denied"
	// forbidden: somebody forbids to have the pod released. That may be an API server that has just started and knows no rights yet.
	forbidden outcome = "forbidden"
	// unclear: it was asked for on old knowledge, the API server is busy or away, or nobody knows. To be looked at again.
	unclear outcome = "unclear"
)

// evict asks for the eviction of a pod. One with the UID of a pod that was replaced under its name would be refused only after it was
// charged to the budget, which then stays used for two minutes: so the pod is looked at first. No name comes twice in a ReplicaSet, and a
// mass reclaim is no time to ask needlessly.
func (e *Executor) evict(ctx context.Context, a Action) (outcome, error) {
	pods := e.client.CoreV1().Pods(a.Pod.Namespace)
	if a.Way != Surge {
		pod, err := pods.Get(ctx, a.Pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return overtaken, nil
		case err != nil:
			return unclear, err
		case pod.UID != a.Pod.UID || pod.DeletionTimestamp != nil:
			return overtaken, nil
		}
	}
	err := pods.EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: a.Pod.Namespace, Name: a.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(a.Pod.UID))},
	})
	switch {
	case err == nil:
		return accepted, nil
	case apierrors.IsNotFound(err):
		return overtaken, nil
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return refused, err
	case severalBudgets(err):
		return barred, err
	}
	// A conflict too: only another UID means that the pod is gone, and the next try looks for it.
	return unclear, err
}

// severalBudgets recognizes the answer of Kubernetes' pkg/registry/core/pod/storage/eviction.go by its words: it has nothing else.
func severalBudgets(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError &&
		strings.Contains(status.Status().Message, "more than one PodDisruptionBudget")
}

// delete deletes a pod.
func (e *Executor) delete(ctx context.Context, a Action) (outcome, error) {
	if a.Orphan {
		if rs, err := e.releasedFrom(ctx, a.Pod); err != nil || rs != nil && kube.Replicas(rs.Spec.Replicas) > 0 {
			return unclear, err
		}
	}
	if a.Way == Delete {
		e.markDisrupted(ctx, a)
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(a.Pod.UID))}
	if a.Grace != nil {
		seconds := int64(*a.Grace / time.Second)
		options.GracePeriodSeconds = &seconds
	}
	pods := e.client.CoreV1().Pods(a.Pod.Namespace)
	err := pods.Delete(ctx, a.Pod.Name, options)
	switch {
	case err == nil:
		return accepted, nil
	case apierrors.IsNotFound(err):
		return overtaken, nil
	case !apierrors.IsConflict(err):
		return unclear, err
	}
	// A conflict says that the UID is another one, or that the pod was written meanwhile.
	if pod, again := pods.Get(ctx, a.Pod.Name, metav1.GetOptions{}); apierrors.IsNotFound(again) || again == nil && pod.UID != a.Pod.UID {
		return overtaken, nil
	}
	return unclear, err
}

// releasedFrom asks the API server for the ReplicaSet that the pod was released from; nil if it is gone, or going.
func (e *Executor) releasedFrom(ctx context.Context, pod *cluster.Pod) (*appsv1.ReplicaSet, error) {
	rs, err := e.client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, pod.Release.ReplicaSet, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (rs.UID != pod.Release.ReplicaSetUID || rs.DeletionTimestamp != nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rs, nil
}

// release takes a pod out of its ReplicaSet in one request: by label, annotation and controller.
func (e *Executor) release(ctx context.Context, a Action) (outcome, error) {
	rs := a.Pod.Revision.ReplicaSet
	state, err := json.Marshal(cluster.Release{
		ReplicaSet: rs.Name, ReplicaSetUID: rs.UID, Hash: a.Pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
		Reason: string(a.Reason), At: e.clock.Now().UTC(),
	})
	if err != nil {
		return unclear, err
	}
	metadata := map[string]any{
		"labels":      map[string]any{appsv1.DefaultDeploymentUniqueLabelKey: kube.ReleasedHash},
		"annotations": map[string]any{kube.ReleaseAnnotation: string(state)},
	}
	if owners := ownersReleased(a.Pod, rs); owners != nil {
		metadata["ownerReferences"] = owners
	}
	if a.ToSpot && e.settings.Wishes != nil {
		// Before the request: the replacement may be there before its answer.
		e.settings.Wishes.Want(a.Pod.Revision.Key, decision.Spot, e.clock.Now().Add(wishedFor))
	}
	o, err := e.patch(ctx, a.Pod, metadata)
	if o != accepted {
		e.forgetWish(a.Pod.Revision)
	}
	switch {
	case apierrors.IsForbidden(err):
		o = forbidden
	// A webhook that gives no code of its own is answered for with 400.
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		o = denied
	}
	return o, err
}

// restore gives a pod back to its ReplicaSet, which then has one too many and removes one, unready ones first. A pod that no Deployment
// controls is not the ReplicaSet's until that has adopted it, and one that is gone never would: so the annotation stays until then, see
// planner.forget.
func (e *Executor) restore(ctx context.Context, a Action) (outcome, error) {
	if rs, err := e.releasedFrom(ctx, a.Pod); err != nil || rs == nil {
		return unclear, err
	}
	metadata := map[string]any{"labels": map[string]any{appsv1.DefaultDeploymentUniqueLabelKey: a.Pod.Release.Hash}}
	if heldByDeployment(a.Pod) {
		metadata["ownerReferences"] = ownersRestored(a.Pod, a.Pod.Release.ReplicaSetUID)
		metadata["annotations"] = map[string]any{kube.ReleaseAnnotation: nil}
	}
	e.forgetWish(a.Pod.ReleasedFrom)
	return e.patch(ctx, a.Pod, metadata)
}

// forgetWish withdraws what a replacement of a revision is to require, because no replacement is expected any more.
func (e *Executor) forgetWish(revision *cluster.Revision) {
	if e.settings.Wishes != nil && revision != nil {
		e.settings.Wishes.Forget(revision.Key)
	}
}

// forget takes the annotation off a pod.
func (e *Executor) forget(ctx context.Context, a Action) (outcome, error) {
	return e.patch(ctx, a.Pod, map[string]any{"annotations": map[string]any{kube.ReleaseAnnotation: nil}})
}

// patch changes what metadata names of a pod; nil removes it. It changes the very pod that was planned for, or nothing.
func (e *Executor) patch(ctx context.Context, pod *cluster.Pod, metadata map[string]any) (outcome, error) {
	metadata["uid"], metadata["resourceVersion"] = pod.UID, pod.ResourceVersion
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return unclear, fmt.Errorf("cannot write the patch: %w", err)
	}
	_, err = e.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, data, metav1.PatchOptions{})
	switch {
	case err == nil:
		return accepted, nil
	case apierrors.IsNotFound(err):
		return overtaken, nil
	}
	return unclear, err
}

// WithoutRetries returns a copy of config whose clients do not wait inside a call when the API server says when to come again: client-go
// would, up to ten times, for 10 s each where a budget refuses an eviction.
func WithoutRetries(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if response != nil {
				response.Header.Del("Retry-After")
			}
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
