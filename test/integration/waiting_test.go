package integration

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// atOnce is how soon a pod must be bound after the event that unblocks it.
const atOnce = 2 * time.Second

// fillNode binds pods of one slot to a node without a scheduler. They have no owner, and the policy
// does not apply to them.
func (s *scenario) fillNode(node string, pods int, edits ...func(*v1.Pod)) {
	s.Helper()
	for i := range pods {
		template := live.PodTemplate("fill")
		pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = fmt.Sprintf("fill-%s-%d", node, i+1)
		pod.Spec.SchedulerName, pod.Spec.NodeName = "other-scheduler", node
		for _, edit := range edits {
			edit(pod)
		}
		_, err := client.CoreV1().Pods(s.Namespace).Create(s.Ctx, pod, metav1.CreateOptions{})
		s.Must(err)
	}
}

// waitingPod returns the only pod with the label app that has no node. It first checks that the
// pod's condition and an event contain why.
func (s *scenario) waitingPod(app, why string) (pod string) {
	s.Helper()
	s.Eventually(soon, s.pendingReason(app, 1, why))
	pods, err := s.Pods(app)
	s.Must(err)
	for i := range pods {
		if pods[i].Spec.NodeName == "" {
			return pods[i].Name
		}
	}
	s.Fatalf("no pod of %s waits", app)
	return ""
}

// awaitIdleScheduler returns when the scheduler has made no attempt for half a second. A later
// attempt is then a reaction to a later event.
func (s *scenario) awaitIdleScheduler() {
	s.Helper()
	tried, since := -1, time.Now()
	s.Eventually(soon, func() error {
		now, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err != nil {
			return err
		}
		if now != tried {
			tried, since = now, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("the scheduler still tries pods: %d attempts", tried)
		}
		return nil
	})
}

// awaitBinding waits at most within until the pod is seen bound, and returns its record.
func (s *scenario) awaitBinding(seen *live.History, pod string, within time.Duration) live.PodRecord {
	s.Helper()
	s.Eventually(within, func() error {
		if seen.Pod(pod).Bound.IsZero() {
			return fmt.Errorf("%s has no node", pod)
		}
		return nil
	})
	return seen.Pod(pod)
}

// requireBoundAtOnce checks that the pod is bound within atOnce after began, and returns its node.
// It waits longer than that, to distinguish a late binding from none.
func (s *scenario) requireBoundAtOnce(seen *live.History, pod string, began time.Time) string {
	s.Helper()
	at := s.awaitBinding(seen, pod, 3*atOnce)
	if took := at.Bound.Sub(began); took > atOnce {
		s.Errorf("%s was bound after %s, want at most %s", pod, took, atOnce)
	} else {
		s.Logf("%s was bound to %s after %s", pod, at.Node, took.Round(time.Millisecond))
	}
	return at.Node
}

// blockPodCreation admits no more pods to the namespace until thaw is called. This prevents the
// replacement of a pod from using the room of that pod.
func (s *scenario) blockPodCreation() (thaw func()) {
	s.Helper()
	quotas, pods := client.CoreV1().ResourceQuotas(s.Namespace), client.CoreV1().Pods(s.Namespace)
	quota := &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-more-pods"},
		Spec:       v1.ResourceQuotaSpec{Hard: v1.ResourceList{v1.ResourcePods: {}}},
	}
	_, err := quotas.Create(s.Ctx, quota, metav1.CreateOptions{})
	s.Must(err)
	template := live.PodTemplate("frozen")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}, Spec: template.Spec}
	s.Eventually(soon, func() error {
		if _, err := pods.Create(s.Ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return fmt.Errorf("the namespace still admits pods")
		}
		return nil
	})
	return func() {
		s.Helper()
		s.Must(quotas.Delete(s.Ctx, quota.Name, metav1.DeleteOptions{}))
	}
}

// patchPod merges a JSON document into a pod.
func (s *scenario) patchPod(name, patch string) {
	s.Helper()
	_, err := client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// editNodeStatus updates the status of a node, and retries on a conflict.
func (s *scenario) editNodeStatus(name string, edit func(*v1.NodeStatus)) {
	s.Helper()
	s.Eventually(10*time.Second, func() error {
		node, err := client.CoreV1().Nodes().Get(s.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(&node.Status)
		_, err = client.CoreV1().Nodes().UpdateStatus(s.Ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// condition returns an edit that sets a condition of a node.
func condition(kind v1.NodeConditionType, status v1.ConditionStatus) func(*v1.NodeStatus) {
	return func(node *v1.NodeStatus) {
		node.Conditions = slices.DeleteFunc(node.Conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
		node.Conditions = append(node.Conditions, v1.NodeCondition{Type: kind, Status: status})
	}
}

// annotation returns a patch that sets an annotation.
func annotation(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

// capacityOf returns the value of the project's label on a node.
func (s *scenario) capacityOf(node string) string {
	s.Helper()
	n, err := client.CoreV1().Nodes().Get(s.Ctx, node, metav1.GetOptions{})
	s.Must(err)
	return n.Labels[lab.CapacityLabel]
}

// podOnSpot returns a live pod with the label app that runs on spot.
func (s *scenario) podOnSpot(app string) *v1.Pod {
	s.Helper()
	pods, err := s.Pods(app)
	s.Must(err)
	for i := range pods {
		if node := pods[i].Spec.NodeName; node != "" && s.capacityOf(node) == lab.Spot {
			return &pods[i]
		}
	}
	s.Fatalf("no pod of %s runs on spot", app)
	return nil
}

func (s *scenario) deletePod(name string) {
	s.Helper()
	s.Must(client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, name, metav1.DeleteOptions{}))
}

// deleteWorkloadsAndNodes deletes all workloads and nodes before the next case.
func (s *scenario) deleteWorkloadsAndNodes() {
	s.Helper()
	s.Must(live.Clear(s.Ctx, client, s.Namespace))
	s.Must(client.CoreV1().Nodes().DeleteCollection(s.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}
