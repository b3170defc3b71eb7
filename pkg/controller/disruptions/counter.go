// Package disruptions counts the disruptions of Jobs whose policy has a disruption limit. The count
// is an annotation of the Job, which the policy reads.
package disruptions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// workers is the number of pods that are counted concurrently.
	workers = 4
	// The delay of a retry doubles with each failure. Most failures are conflicts: the status of
	// the Job has changed, and the cache shows it soon.
	minRetry, maxRetry = 10 * time.Millisecond, time.Minute
)

// Counter counts the disruptions of Jobs up to their disruption limit.
//
// A disrupted pod of a Job ends with the condition DisruptionTarget. Evictions, the controller's
// own deletions, taint-based eviction, preemption, the kubelet's graceful shutdown and the garbage
// collection of pods of a deleted node all set it. Each pod counts once: the Job also records the
// UIDs of the counted pods, and each write requires the version of the Job that was read.
type Counter struct {
	scope  workload.Scope
	policy *decision.Policy
	client kubernetes.Interface

	owners *workload.Owners
	jobs   batchlisters.JobLister
	// pods are the informers of pods that have not ended, and of failed pods.
	pods  []cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[*v1.Pod]
}

// New returns a Counter for the pods in scope. It reads from factory, and from failed, whose pods
// are the failed ones. Neither must have been started. client must not block in order to retry
// refused calls.
func New(factory, failed informers.SharedInformerFactory, client kubernetes.Interface, scope workload.Scope,
	policy *decision.Policy) (*Counter, error) {
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	return &Counter{
		scope: scope, policy: policy, client: client, owners: owners, jobs: factory.Batch().V1().Jobs().Lister(),
		pods:  []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), failed.Core().V1().Pods().Informer()},
		queue: turns.NewQueue("disruptions", minRetry, maxRetry, (*v1.Pod).GetNamespace),
	}, nil
}

// Run counts until ctx is done. The caches must be synced. It may be called once. It starts with
// all disrupted pods that exist, because a previous leader may not have counted them.
func (c *Counter) Run(ctx context.Context) error {
	for _, pods := range c.pods {
		registration, err := pods.AddEventHandler(informer.Handler[*v1.Pod]{
			Add: c.observe,
			Update: func(before, after *v1.Pod) {
				if !disrupted(before) {
					c.observe(after)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watching pods: %w", err)
		}
		defer func() { _ = pods.RemoveEventHandler(registration) }() // fails only if the informer has stopped
	}
	turns.Process(ctx, c.queue, workers, func(ctx context.Context, pod *v1.Pod) (again time.Duration, err error) {
		err = client.IgnoreNotFound(c.count(ctx, pod))
		if err != nil {
			err = fmt.Errorf("counting the disruption of the Job of pod %s: %w", klog.KObj(pod), err)
		}
		if apierrors.IsInvalid(err) { // such as annotations that are too long: the API server would refuse a retry too
			klog.FromContext(ctx).Error(err, "Failed, will not retry")
			return 0, nil
		}
		return 0, err
	})
	return nil
}

func (c *Counter) observe(pod *v1.Pod) {
	if disrupted(pod) && c.scope.Includes(pod) {
		c.queue.Add(pod)
	}
}

// disrupted reports whether the pod belongs to a Job, and ends or has failed because of a
// disruption. The condition alone does not suffice, because the deletion may fail afterwards.
func disrupted(pod *v1.Pod) bool {
	return (pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed) && workload.OfJob(pod) && workload.Disrupted(pod)
}

// count adds the pod to the disruptions of its Job, unless it is counted already, or the Job does
// not need the count. A Job without a limit does not, nor does one that has reached its limit, has
// ended or is being deleted.
func (c *Counter) count(ctx context.Context, pod *v1.Pod) error {
	defer recovery.Recover(recovery.Pod, klog.KObj(pod))
	// The Job is read before the settings. If it changes in between, the write meets a conflict.
	job, err := c.jobs.Jobs(pod.Namespace).Get(metav1.GetControllerOfNoCopy(pod).Name)
	if err != nil {
		return err
	}
	subject, err := c.owners.Subject(pod)
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		return nil
	}
	if err != nil {
		return err
	}
	settings, _ := c.policy.Settings(&subject.Pod)
	if settings.DisruptionLimit == 0 || settings.DisruptionLimitReached() || job.Status.CompletionTime != nil {
		return nil
	}
	counted := countedPods(job)
	if slices.Contains(counted, string(pod.UID)) {
		return nil
	}
	// A user may have written anything. The controller's own list is shorter than the limit here.
	counted = append(counted[max(0, len(counted)-settings.DisruptionLimit+1):], string(pod.UID))
	if err := c.write(ctx, job, settings.Disruptions+1, counted); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Counted disruption of Job", "job", klog.KObj(job), "pod", klog.KObj(pod),
		"disruptions", settings.Disruptions+1, "limit", settings.DisruptionLimit)
	return nil
}

func countedPods(job *batchv1.Job) []string {
	text := job.Annotations[spot.DisruptedPodsAnnotation]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// write records the disruptions on the Job. It returns a conflict if the Job has changed since it
// was read.
func (c *Counter) write(ctx context.Context, job *batchv1.Job, disruptions int, counted []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": job.UID, "resourceVersion": job.ResourceVersion,
		"annotations": map[string]string{
			spot.DisruptionsAnnotation: strconv.Itoa(disruptions), spot.DisruptedPodsAnnotation: strings.Join(counted, ","),
		},
	}})
	if err != nil {
		return err
	}
	_, err = c.client.BatchV1().Jobs(job.Namespace).Patch(ctx, job.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
