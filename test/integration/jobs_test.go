package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestPlacementJobs(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 20), live.Spot(3, 20)))
	annotate := func(floor string) func(*batchv1.Job) {
		return func(job *batchv1.Job) { job.Annotations[minOnDemand] = floor }
	}
	noRetry := func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32) }
	failurePolicy := func(rule batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{rule}}
		}
	}

	s.job("retries", 4, 4)
	s.job("indexed", 4, 4, func(job *batchv1.Job) {
		mode := batchv1.IndexedCompletion
		job.Spec.CompletionMode = &mode
	})
	s.job("floor", 4, 4, annotate("50%"))
	// At most as many pods as completions run at once, so 50% is one of two pods, not three of
	// five.
	s.job("few-completions", 5, 2, annotate("50%"))
	s.job("no-retry", 3, 3, noRetry)
	s.job("no-retry-annotated", 3, 3, noRetry, annotate("1"))
	s.job("no-retry-but-disruptions", 3, 3, noRetry, failurePolicy(batchv1.PodFailurePolicyRule{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}))
	s.job("no-retry-but-some-exits", 3, 3, noRetry, failurePolicy(batchv1.PodFailurePolicyRule{
		Action:      batchv1.PodFailurePolicyActionIgnore,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
	}))
	s.Eventually(soon, s.haveSplits(map[string]split{
		"retries": {Spot: 4}, "indexed": {Spot: 4}, "floor": {OnDemand: 2, Spot: 2}, "few-completions": {OnDemand: 1, Spot: 1},
		"no-retry": {OnDemand: 3}, "no-retry-annotated": {OnDemand: 1, Spot: 2},
		"no-retry-but-disruptions": {Spot: 3}, "no-retry-but-some-exits": {OnDemand: 3},
	}))
}

// When a Job is about to complete, it needs fewer pods at once. Its last pods are its whole floor.
func TestCompletingJob(t *testing.T) {
	s := start(t, live.Spot(1, 20))
	s.job("ending", 3, 3, func(job *batchv1.Job) { job.Annotations[minOnDemand] = "1" })
	s.Eventually(soon, s.HasSplit("ending", split{Spot: 2, Waiting: 1}))
	pods, err := s.Pods("ending")
	s.Must(err)
	s.Eventually(soon, s.pendingReason("ending", 1, "2 of at most 2 replicas"))
	pods = slices.DeleteFunc(pods, func(pod v1.Pod) bool { return pod.Spec.NodeName == "" })
	for i, why := range []string{"1 of at most 1 replicas", "0 of at most 0 replicas"} {
		// The Job's status lags behind its pods. Without the cordon, the waiting pod could be bound
		// to the freed slot in the meantime.
		s.EditNode("spot-1", func(node *v1.Node) { node.Spec.Unschedulable = true })
		s.awaitCordon(fmt.Sprint("cordon-", i))
		s.completePod(pods[i].Name)
		s.Eventually(soon, func() error {
			job, err := client.BatchV1().Jobs(s.Namespace).Get(s.Ctx, "ending", metav1.GetOptions{})
			if err == nil && job.Status.Succeeded != int32(i+1) {
				err = fmt.Errorf("%+v", job.Status)
			}
			return err
		})
		s.awaitJobs(fmt.Sprint("marker-", i))
		s.EditNode("spot-1", func(node *v1.Node) { node.Spec.Unschedulable = false })
		// Check only the condition: the event recorder combines similar events into one series and
		// keeps the first note.
		s.Eventually(soon, func() error {
			pods, err := s.Pods("ending")
			for _, pod := range pods {
				if message := scheduled(&pod).Message; pod.Spec.NodeName == "" && strings.Contains(message, why) {
					return nil
				}
			}
			return fmt.Errorf("no pod waits because of %q, %v", why, err)
		})
	}
	s.AddNodes(live.OnDemand(1, 1)...)
	s.Eventually(soon, s.HasSplit("ending", split{OnDemand: 1}))
}

// awaitCordon returns after the scheduler has seen that all nodes are cordoned, and refuses to bind
// the pod of a new Job. The names of the Jobs start with name.
func (s *scenario) awaitCordon(name string) {
	s.Helper()
	for i := range 5 {
		job := fmt.Sprint(name, "-", i)
		s.job(job, 1, 1)
		refused := s.pendingReason(job, 1, "unschedulable")
		s.Eventually(soon, func() error {
			if s.HasSplit(job, split{Spot: 1})() == nil {
				return nil
			}
			return refused()
		})
		if refused() == nil {
			return
		}
	}
	s.Fatal("the scheduler does not see the cordon")
}

// awaitJobs returns after the scheduler has seen all earlier changes of Jobs. It binds no pod of a
// Job that it does not know, and its watch delivers the changes of all Jobs in their order. name is
// the name of a new Job, whose pod tolerates a cordon.
func (s *scenario) awaitJobs(name string) {
	s.Helper()
	s.job(name, 1, 1, func(job *batchv1.Job) {
		job.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	})
	s.Eventually(soon, s.HasSplit(name, split{Spot: 1}))
}

// completePod sets the phase of a pod to Succeeded.
func (s *scenario) completePod(name string) {
	s.Helper()
	s.Eventually(soon, func() error {
		pod, err := client.CoreV1().Pods(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != v1.PodRunning {
			return fmt.Errorf("%s is %s", name, pod.Status.Phase)
		}
		pod.Status.Phase = v1.PodSucceeded
		_, err = client.CoreV1().Pods(s.Namespace).UpdateStatus(s.Ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// job creates a Job of live.PodTemplate(name), modified by edits.
func (s *scenario) job(name string, parallelism, completions int32, edits ...func(*batchv1.Job)) {
	s.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec:       batchv1.JobSpec{Parallelism: &parallelism, Completions: &completions, Template: live.PodTemplate(name)},
	}
	job.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	for _, edit := range edits {
		edit(job)
	}
	_, err := client.BatchV1().Jobs(s.Namespace).Create(s.Ctx, job, metav1.CreateOptions{})
	s.Must(err)
}
