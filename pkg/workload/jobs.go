package workload

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

func jobDesired(job *batchv1.Job) int {
	desired := Replicas(job.Spec.Parallelism)
	if job.Spec.Completions != nil {
		desired = min(desired, int(*job.Spec.Completions-job.Status.Succeeded))
	}
	return max(desired, 0)
}

// batchOf returns whether the Job retries a lost pod, so that the loss only costs time. The first
// rule of podFailurePolicy that applies to disruptions decides. Without one, a Job retries unless
// its backoff limit, or its limit per index, is 0. ignored reports whether the loss counts as no
// failure.
func batchOf(job *batchv1.Job) (batch decision.Batch, ignored bool) {
	fails := decision.NotRetriable
	if mayBeRestarted(job) {
		fails = decision.MaybeRetriable
	}
	if policy := job.Spec.PodFailurePolicy; policy != nil {
		earlier := false // an earlier rule may apply to the exit code of an evicted pod
		for i := range policy.Rules {
			switch rule := &policy.Rules[i]; {
			case !onDisruption(rule) || rule.Action == batchv1.PodFailurePolicyActionCount:
				earlier = earlier || rule.Action != batchv1.PodFailurePolicyActionIgnore
			case rule.Action == batchv1.PodFailurePolicyActionIgnore:
				return decision.Retriable, !earlier
			default: // FailJob, FailIndex
				return fails, false
			}
		}
	}
	if ptr.Deref(job.Spec.BackoffLimit, 1) == 0 || ptr.Deref(job.Spec.BackoffLimitPerIndex, 1) == 0 {
		return fails, false
	}
	return decision.Retriable, false
}

// mayBeRestarted reports whether the controller of the Job may start it again after it failed.
func mayBeRestarted(job *batchv1.Job) bool {
	ref := metav1.GetControllerOfNoCopy(job)
	restarts := func(o providers.PodOwner) bool { return o.RestartsJobs && o.Group == groupOf(ref) }
	return ref != nil && slices.ContainsFunc(providers.PodOwners, restarts)
}

// onDisruption reports whether the rule applies to pods that a reclaim or a drain removes.
func onDisruption(rule *batchv1.PodFailurePolicyRule) bool {
	return slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
		return c.Type == v1.DisruptionTarget && (c.Status == v1.ConditionTrue || c.Status == "")
	})
}
