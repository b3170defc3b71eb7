//go:build long

package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongProtectWithoutController: the scheduler deletes the budgets of a controller that was
// killed, and the drain that waits for them ends. A restarted controller recreates them.
func TestLongProtectWithoutController(t *testing.T) {
	s := start(t, live.OnDemand(2, 5)...)
	s.Deploy("one", 1, protected)
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))
	s.StartController(drains())
	s.Eventually(soon, s.hasControllerBudget("one", "0"))
	s.Must(s.Controller.Kill())

	const most = 5*time.Minute + 30*time.Second
	took, err := s.drain(s.podOf("one").Spec.NodeName, most)
	s.Must(err)
	t.Logf("the drain took %s", took.Round(time.Millisecond))
	if took < 4*time.Minute {
		t.Errorf("the drain took %s: a controller that restarts within 5 min must find its budgets", took)
	}
	s.Must(s.hasNoControllerBudget("one")())
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))

	s.StartController(drains())
	s.Eventually(time.Minute, s.hasControllerBudget("one", "0")) // the lease of the killed controller must expire first
}

// TestLongProtectBesideJob: if the pod of a Job has the labels of a Deployment, Kubernetes cannot
// count the pods of the Deployment's budget, and allows no eviction, even after the Job has ended.
// The controller deletes its budget, and the drain ends.
func TestLongProtectBesideJob(t *testing.T) {
	s := start(t, live.OnDemand(2, 5)...)
	template := live.PodTemplate("one")
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := client.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "migrate"}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))
	s.setPhase(s.podOf("one"), v1.PodSucceeded)
	s.Eventually(soon, s.jobHasCondition("migrate", batchv1.JobComplete))

	s.Deploy("one", 1, protected)
	s.Eventually(soon, s.complete("one", 1))
	s.StartController(drains())
	s.Eventually(soon, s.HasEvent("one", "Protected", "one-protected"))
	s.Eventually(time.Minute, s.hasNoControllerBudget("one"))
	s.Eventually(soon, s.HasEvent("one", "NotProtected", "Kubernetes cannot count the pods"))
	for _, node := range []string{"od-1", "od-2"} {
		took, err := s.drain(node, time.Minute)
		s.Must(err)
		t.Logf("the drain took %s", took.Round(time.Millisecond))
		s.uncordon(node)
		s.Eventually(soon, s.complete("one", 1))
	}
}
