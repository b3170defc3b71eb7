package controller

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The names in manifests and kubectl output, as literals, so that a change of a constant in the
// code fails the tests.
const (
	minOnDemand        = "spot-aware-scheduler.io/min-on-demand"
	fallbackAfter      = "spot-aware-scheduler.io/fallback-after"
	surgeAnnotation    = "spot-aware-scheduler.io/surge"
	deletionCost       = "controller.kubernetes.io/pod-deletion-cost"
	interruptionTaint  = "spot-aware-scheduler.io/interruption"
	deadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"
	stateAnnotation    = "spot-aware-scheduler.io/interruption-state"
	// reclaimed and advised are taints of the AWS node termination handler.
	reclaimed = "aws-node-termination-handler/spot-itn"
	advised   = "aws-node-termination-handler/rebalance-recommendation"
)

// split counts the pods of an app by the capacity type of their nodes.
type split = live.Split

// protect creates a PodDisruptionBudget of the app. The test fails at every moment at which fewer
// of the app's replicas are ready than the budget requires.
func (s *scenario) protect(app string, replicas int, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	s.budget(app, app, spec)
	least := 0
	scaled := func(value *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true) // rounded like in the disruption controller
		s.Must(err)
		return n
	}
	if spec.MinAvailable != nil {
		least = scaled(spec.MinAvailable)
	} else {
		least = replicas - scaled(spec.MaxUnavailable)
	}
	s.Seen.RequireReady(app, least)
}

// budget creates a PodDisruptionBudget of the app and returns when the disruption controller has
// computed its status.
func (s *scenario) budget(name, app string, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	budgets := client.PolicyV1().PodDisruptionBudgets(s.Namespace)
	_, err := budgets.Create(s.Ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(soon, func() error {
		b, err := budgets.Get(s.Ctx, name, metav1.GetOptions{})
		if err == nil && b.Status.ObservedGeneration < b.Generation {
			err = fmt.Errorf("PodDisruptionBudget %s has no status yet", name)
		}
		return err
	})
}

func minAvailable(value string) policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.Parse(value))}
}

func maxUnavailable(value string) policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.Parse(value))}
}

// complete returns a check that the Deployment has its desired pods and all are ready, that no
// other pods have its label, and that its replica counts did not change.
func (s *scenario) complete(name string, replicas int) func() error {
	return func() error {
		d, err := client.AppsV1().Deployments(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		status := d.Status
		if int(*d.Spec.Replicas) != replicas || int(status.Replicas) != replicas || int(status.AvailableReplicas) != replicas || len(pods) != replicas {
			return fmt.Errorf("%s: %d desired replicas, %d pods, status %+v, want %d of each", name, *d.Spec.Replicas, len(pods), status, replicas)
		}
		// For a moment after an eviction, the status of the Deployment is the one before it.
		if i := slices.IndexFunc(pods, func(pod v1.Pod) bool { return !live.IsReady(&pod) }); i >= 0 {
			return fmt.Errorf("%s: pod %s is not ready", name, pods[i].Name)
		}
		return nil
	}
}

// noPodReleased is a check that no pod is released from its ReplicaSet.
func (s *scenario) noPodReleased() error {
	if released := s.Auditor.Released(); len(released) > 0 {
		return fmt.Errorf("released: %q", released)
	}
	return nil
}

// released returns a check that `want` pods of this app are released from their ReplicaSets.
func (s *scenario) released(app string, want int) func() error {
	return func() error {
		got := 0
		for _, record := range s.Seen.Pods(app) {
			if n := len(record.Releases); n > 0 && record.Releases[n-1].Ended.IsZero() && record.Left.IsZero() {
				got++
			}
		}
		if got != want {
			return fmt.Errorf("%s: %d pods are released, want %d", app, got, want)
		}
		return nil
	}
}

// tainted returns an edit that sets a taint with an effect that does not exclude pods.
func tainted(key string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: "test", Effect: v1.TaintEffectPreferNoSchedule})
	}
}

// untainted returns an edit that removes a taint.
func untainted(key string) func(*v1.Node) {
	return func(n *v1.Node) {
		var kept []v1.Taint
		for _, t := range n.Spec.Taints {
			if t.Key != key {
				kept = append(kept, t)
			}
		}
		n.Spec.Taints = kept
	}
}

// notice announces the reclaim of a node like a user or a webhook, with the project's own taint
// and annotation. It returns the deadline, which is a whole second.
func (s *scenario) notice(node string, left time.Duration) time.Time {
	s.Helper()
	deadline := time.Now().Add(left).Truncate(time.Second)
	s.announce(node, deadline.UTC().Format(time.RFC3339))
	return deadline
}

// announce sets the project's own taint and annotation. The deadline may be invalid.
func (s *scenario) announce(node, deadline string, edits ...func(*v1.Taint)) {
	s.Helper()
	s.EditNode(node, func(n *v1.Node) {
		taint := v1.Taint{Key: interruptionTaint, Value: "test", Effect: v1.TaintEffectNoSchedule}
		for _, edit := range edits {
			edit(&taint)
		}
		n.Spec.Taints = append(n.Spec.Taints, taint)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[deadlineAnnotation] = deadline
	})
}

// marked returns a check whether the node has the project's taint. A node without the taint must
// not have a deadline either.
func (s *scenario) marked(node string, want bool) func() error {
	return func() error {
		n, err := client.CoreV1().Nodes().Get(s.Ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		taint := slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == interruptionTaint })
		if deadline, ok := n.Annotations[deadlineAnnotation]; taint != want || ok && !want {
			return fmt.Errorf("%s is tainted: %t, deadline %q, want %t", node, taint, deadline, want)
		}
		return nil
	}
}

// haveBeenRemoved returns a check that at least `want` pods have left.
func (s *scenario) haveBeenRemoved(want int) func() error {
	return func() error {
		if gone := len(s.Seen.Removed("")); gone < want {
			return fmt.Errorf("%d of %d pods have left", gone, want)
		}
		return nil
	}
}

// haveAllBeenRemoved returns a check that at least as many pods have left as all apps have replicas
// together.
func (s *scenario) haveAllBeenRemoved(replicas map[string]int) func() error {
	all := 0
	for _, n := range replicas {
		all += n
	}
	return s.haveBeenRemoved(all)
}

// empty returns a check that no pod is on the node.
func (s *scenario) empty(node string) func() error {
	return func() error {
		list, err := client.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are on %s", len(list.Items), node)
		}
		return err
	}
}
