package controller

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestJobEndsOnOnDemand: a Job with a disruption limit of 3 is interrupted three times. Its next
// pod runs on on-demand, although spot has room, and the Job completes. The controller restarts
// after the second interruption and continues with the count. The test replaces the kubelet, which
// sets the phase of a deleted pod; KWOK does not.
func TestJobEndsOnOnDemand(t *testing.T) {
	s := start(t, append(live.Spot(4, 2), live.OnDemand(1, 2)...)...)
	s.StartController(interruptionsOnly())
	template := live.PodTemplate("batch")
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	_, err := client.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "batch", Annotations: map[string]string{"spot-aware-scheduler.io/disruption-limit": "3"}},
		Spec: batchv1.JobSpec{
			Template: template, BackoffLimit: ptr.To[int32](0),
			// Otherwise the Job would fail with its first pod.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
			}}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	// The Job controller waits longer and longer before it replaces a failed pod.
	const replaced = 2 * time.Minute
	for interruption := 1; interruption <= 3; interruption++ {
		s.Eventually(replaced, s.HasReadySplit("batch", split{Spot: 1}))
		s.interruptJob("batch")
		s.Eventually(soon, s.hasDisruptions("batch", fmt.Sprint(interruption)))
		if interruption == 2 {
			s.Must(s.Controller.Stop())
			s.StartController(interruptionsOnly())
		}
	}
	s.Eventually(replaced, s.HasReadySplit("batch", split{OnDemand: 1}))
	s.setPhase(s.podOf("batch"), v1.PodSucceeded)
	s.Eventually(soon, s.jobHasCondition("batch", batchv1.JobComplete))
	s.Must(s.hasDisruptions("batch", "3")())
}

// interruptJob announces the reclaim of the node of a Job's only pod, and ends the pod after the
// controller has removed it.
func (s *scenario) interruptJob(app string) {
	s.Helper()
	pod := s.podOf(app)
	if capacity := s.Node(pod.Spec.NodeName).Labels["node.kubernetes.io/capacity"]; capacity != lab.Spot {
		s.Fatalf("%s runs on a node with capacity %q, want spot", pod.Name, capacity)
	}
	s.notice(pod.Spec.NodeName, 20*time.Second)
	s.Eventually(soon, func() error {
		if s.pod(pod.Name).DeletionTimestamp == nil {
			return fmt.Errorf("%s still runs on %s", pod.Name, pod.Spec.NodeName)
		}
		return nil
	})
	s.setPhase(pod, v1.PodFailed)
}

// hasDisruptions returns a check that the controller has counted this number of disruptions.
func (s *scenario) hasDisruptions(job, want string) func() error {
	return func() error {
		j, err := client.BatchV1().Jobs(s.Namespace).Get(s.Ctx, job, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := j.Annotations["spot-aware-scheduler.io/disruptions"]; got != want {
			return fmt.Errorf("Job %s has %q disruptions, want %s", job, got, want)
		}
		return nil
	}
}
