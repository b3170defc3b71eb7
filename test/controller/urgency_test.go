package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestReplacementsWithoutRoomArePending: twenty nodes are reclaimed, and no other node has room for
// their pods. The replacements exist within two seconds, so that an autoscaler can add nodes for
// them. The pods serve until the replacements are ready. On a busy machine, the limit is four times
// the time that a scale-up takes to create as many pods.
func TestReplacementsWithoutRoomArePending(t *testing.T) {
	const nodes, perNode, within = 20, 3, 2 * time.Second
	s := start(t, live.Spot(nodes, perNode)...)
	want := map[string]split{}
	for i := range perNode {
		want[fmt.Sprintf("app-%d", i)] = split{Spot: nodes}
	}
	for app := range want {
		s.Deploy(app, nodes, live.Annotated(minOnDemand, "0"))
	}
	s.Eventually(2*soon, s.HaveReadySplits(want))
	began := time.Now()
	for app := range want {
		s.Scale(app, 2*nodes)
	}
	s.Eventually(soon, s.wait(nodes*perNode))
	scaled := time.Since(began)
	for app := range want {
		s.Scale(app, nodes)
	}
	s.Eventually(soon, s.HaveReadySplits(want))
	for app := range want {
		s.protect(app, nodes, maxUnavailable("0"))
	}
	s.StartController(interruptionsOnly())
	s.Eventually(soon, func() error { // a new leader waits for its caches
		rounds, err := s.MetricValue(s.Controller, "spot_aware_scheduler_controller_plan_duration_seconds_count", nil)
		if err == nil && rounds == 0 {
			err = errors.New("the controller has not started")
		}
		return err
	})

	began = time.Now()
	var group errgroup.Group
	for i := range nodes {
		group.Go(func() error {
			s.notice(fmt.Sprintf("spot-%d", i+1), 2*time.Minute)
			return nil
		})
	}
	_ = group.Wait()
	given := time.Since(began)
	s.Eventually(soon, s.wait(nodes*perNode))
	took := time.Since(began)
	t.Logf("%d replacements are pending %s after the first notice; the last notice was set after %s; a scale-up created as many in %s", nodes*perNode,
		took.Round(time.Millisecond), given.Round(time.Millisecond), scaled.Round(time.Millisecond))
	if limit := max(within, 4*scaled); took > limit {
		t.Errorf("the replacements existed after %s, want at most %s", took.Round(time.Millisecond), limit.Round(time.Millisecond))
	}
	for app := range want {
		s.Eventually(soon, s.HasEvent(app+"-", "ReleasedToMove", "waits for a new node"))
	}
	s.AddNodes(live.OnDemand(nodes, perNode)...) // like an autoscaler
	s.Eventually(time.Minute, s.Moved(nodes*perNode, nodes*perNode, "surge", "interruption"))
	for app := range want {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: nodes}))
	}
	s.Eventually(soon, s.noPodReleased)
}

// wait returns a check that `want` pods are not bound.
func (s *scenario) wait(want int) func() error {
	return func() error {
		pods, err := client.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil && len(pods.Items) != want {
			err = fmt.Errorf("%d pods are not bound, want %d", len(pods.Items), want)
		}
		return err
	}
}

// TestOperatorPodsAreEvictedOneByOne: the pods of an operator each run on a node that is reclaimed
// in a minute. Their budget allows one eviction at a time. The operator is simulated: it recreates
// a deleted pod under the same name.
func TestOperatorPodsAreEvictedOneByOne(t *testing.T) {
	const brokers, notice = 3, time.Minute
	s := start(t, live.Spot(brokers, 1)...)
	owner := metav1.OwnerReference{
		APIVersion: "example.com/v1", Kind: "BrokerSet", Name: "broker", UID: "0c1d0d3c-6cf4-4d4b-9a55-3f2f1f6f7c11", Controller: ptr.To(true),
	}
	ctx, stop := context.WithCancel(s.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.runOperator(ctx, owner, brokers) }()
	t.Cleanup(func() { // before the scenario removes its pods
		stop()
		if err := <-ended; err != nil {
			t.Error("the operator:", err)
		}
	})
	s.Eventually(soon, s.HasReadySplit(owner.Name, split{Spot: brokers}))
	s.protect(owner.Name, brokers, minAvailable("2"))
	s.AddNodes(live.OnDemand(brokers, 1)...)
	s.StartController(interruptionsOnly())

	began := time.Now()
	deadline := began.Add(notice)
	for i := range brokers {
		s.notice(fmt.Sprintf("spot-%d", i+1), notice)
	}
	s.Eventually(time.Until(deadline), s.HasReadySplit(owner.Name, split{OnDemand: brokers}))
	t.Logf("%d pods replaced one after the other within %s of %s", brokers, time.Since(began).Round(100*time.Millisecond), notice)
	s.Eventually(soon, s.Moved(brokers, brokers, "evict", "interruption"))
}

// runOperator recreates the pods of an operator under their names until ctx is done.
func (s *scenario) runOperator(ctx context.Context, owner metav1.OwnerReference, n int) error {
	for ctx.Err() == nil {
		if err := s.recreatePods(ctx, owner, n); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// recreatePods creates the operator's n pods, except pods that exist. It waits until the status
// of no budget names the evicted pod. If the disruption controller does not see that a pod is gone,
// it counts the new pod of that name as disrupted for two minutes, and allows no other eviction.
func (s *scenario) recreatePods(ctx context.Context, owner metav1.OwnerReference, n int) error {
	pods, err := live.Pods(ctx, client, s.Namespace, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// An eviction is in the budget's status before its pod is deleted. So read the budgets second.
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	taken := sets.New[string]()
	for _, pod := range pods {
		taken.Insert(pod.Name)
	}
	for _, budget := range budgets.Items {
		taken = taken.Union(sets.KeySet(budget.Status.DisruptedPods))
	}
	for i := range n {
		template := live.PodTemplate(owner.Name)
		pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name, pod.OwnerReferences = fmt.Sprintf("%s-%d", owner.Name, i), []metav1.OwnerReference{owner}
		pod.Annotations = map[string]string{minOnDemand: "0"}
		if taken.Has(pod.Name) {
			continue
		}
		if _, err := client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// TestJobIgnoresDisruption: a Job fails at the first failed pod, except for disruptions. The
// controller deletes its pod regardless of the budget. The pod ends with an error on a node that
// still exists, and the Job continues. A pod of another Job, which a user deletes, fails that
// Job. The test replaces the kubelet, which sets the phase of a deleted pod; KWOK does not.
func TestJobIgnoresDisruption(t *testing.T) {
	const grace = 5 * time.Second
	s := start(t, live.Spot(1, 2)...)
	jobs := client.BatchV1().Jobs(s.Namespace)
	for _, app := range []string{"reclaimed", "by-hand"} {
		template := live.PodTemplate(app)
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
		_, err := jobs.Create(s.Ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0), Template: template,
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
					Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
				}},
			}}},
		}}, metav1.CreateOptions{})
		s.Must(err)
	}
	for _, app := range []string{"reclaimed", "by-hand"} {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: 1}))
	}
	s.budget("reclaimed", "reclaimed", minAvailable("1"))
	s.AddNodes(live.OnDemand(1, 2)...)

	byHand := s.podOf("by-hand")
	s.Must(client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, byHand.Name, metav1.DeleteOptions{}))
	s.setPhase(byHand, v1.PodFailed)
	s.Eventually(soon, s.jobHasCondition("by-hand", batchv1.JobFailed))

	s.StartController(interruptionsOnly())
	first := s.podOf("reclaimed")
	deadline := s.notice("spot-1", 20*time.Second)
	s.requireRemovalAt("reclaimed", deadline.Add(-grace))
	marked := s.pod(first.Name)
	if i := slices.IndexFunc(marked.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }); i < 0 ||
		marked.Status.Conditions[i].Reason != "SpotInterruption" {
		t.Errorf("conditions %+v, want DisruptionTarget because of SpotInterruption", marked.Status.Conditions)
	}
	s.setPhase(first, v1.PodFailed)
	s.Eventually(soon, s.HasReadySplit("reclaimed", split{OnDemand: 1}))
	s.setPhase(s.podOf("reclaimed"), v1.PodSucceeded)
	s.Eventually(soon, s.jobHasCondition("reclaimed", batchv1.JobComplete))
}

// podOf returns the only pod of the app that is not terminating.
func (s *scenario) podOf(app string) *v1.Pod {
	s.Helper()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + app})
	s.Must(err)
	pods = slices.DeleteFunc(pods, func(pod v1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(pods) != 1 {
		s.Fatalf("%s has %d pods, want one", app, len(pods))
	}
	return &pods[0]
}

func (s *scenario) pod(name string) *v1.Pod {
	s.Helper()
	pod, err := client.CoreV1().Pods(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
	s.Must(err)
	return pod
}

// setPhase sets the phase of a terminated pod, like its kubelet.
func (s *scenario) setPhase(pod *v1.Pod, phase v1.PodPhase) {
	s.Helper()
	s.Eventually(soon, func() error {
		now := s.pod(pod.Name)
		now.Status.Phase = phase
		_, err := client.CoreV1().Pods(s.Namespace).UpdateStatus(s.Ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// jobHasCondition returns a check that the Job has ended with this condition.
func (s *scenario) jobHasCondition(name string, want batchv1.JobConditionType) func() error {
	return func() error {
		job, err := client.BatchV1().Jobs(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == want && c.Status == v1.ConditionTrue }) {
			return fmt.Errorf("Job %s has the conditions %+v, want %s", name, job.Status.Conditions, want)
		}
		return nil
	}
}
