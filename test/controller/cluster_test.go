package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// deploy creates a Deployment of podTemplate(name), changed by edits.
func (s *scenario) deploy(name string, replicas int32, edits ...func(*appsv1.Deployment)) {
	s.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: live.PodTemplate(name),
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	_, err := client.AppsV1().Deployments(s.namespace).Create(s.ctx, d, metav1.CreateOptions{})
	s.must(err)
}

// annotated returns an edit that sets an annotation of the Deployment.
func annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[key] = value }
}

// onlyOn returns an edit that restricts the pods to nodes with this label.
func onlyOn(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{key: value} }
}

// deployment returns a Deployment.
func (s *scenario) deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := client.AppsV1().Deployments(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return d
}

// patch changes a Deployment by a strategic merge.
func (s *scenario) patch(name, patch string) {
	s.Helper()
	_, err := client.AppsV1().Deployments(s.namespace).Patch(s.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}

// scale sets the replicas of a Deployment.
func (s *scenario) scale(name string, replicas int) {
	s.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// update sets the image of a Deployment.
func (s *scenario) update(name, image string) {
	s.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, "registry.invalid/"+image))
}

// protect creates a PodDisruptionBudget of the app. The test fails at every moment at which fewer
// of the app's replicas are ready than the budget requires.
func (s *scenario) protect(app string, replicas int, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	s.budget(app, app, spec)
	least := 0
	scaled := func(value *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true) // rounded like in the disruption controller
		s.must(err)
		return n
	}
	if spec.MinAvailable != nil {
		least = scaled(spec.MinAvailable)
	} else {
		least = replicas - scaled(spec.MaxUnavailable)
	}
	s.seen.requireReady(app, least)
}

// budget creates a PodDisruptionBudget of the app and returns when the disruption controller has
// computed its status.
func (s *scenario) budget(name, app string, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	budgets := client.PolicyV1().PodDisruptionBudgets(s.namespace)
	_, err := budgets.Create(s.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(soon, func() error {
		b, err := budgets.Get(s.ctx, name, metav1.GetOptions{})
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

// hasSplit returns a check that the pods of app have this split and are all ready.
func (s *scenario) hasSplit(app string, want split) func() error {
	return s.haveSplits(map[string]split{app: want})
}

// haveSplits returns a check that the pods of the apps have these splits and that all bound
// pods are ready.
func (s *scenario) haveSplits(want map[string]split) func() error {
	return func() error {
		got := map[string]split{}
		for _, namespace := range append(s.others, s.namespace) {
			part, err := live.Splits(s.ctx, client, namespace)
			if err != nil {
				return err
			}
			maps.Copy(got, part)
		}
		for app, want := range want {
			if got[app] != want {
				return fmt.Errorf("%s: %+v, want %+v", app, got[app], want)
			}
			if ready := s.seen.readyOf(app); ready != want.OnDemand+want.Spot {
				return fmt.Errorf("%s: %+v, and %d are ready", app, want, ready)
			}
		}
		return nil
	}
}

// complete returns a check that the Deployment has its desired pods and all are ready, that no
// other pods have its label, and that its replica counts did not change.
func (s *scenario) complete(name string, replicas int) func() error {
	return func() error {
		d, err := client.AppsV1().Deployments(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := live.Pods(s.ctx, client, s.namespace, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		status := d.Status
		if int(*d.Spec.Replicas) != replicas || int(status.Replicas) != replicas || int(status.AvailableReplicas) != replicas || len(pods) != replicas {
			return fmt.Errorf("%s: %d desired replicas, %d pods, status %+v, want %d of each", name, *d.Spec.Replicas, len(pods), status, replicas)
		}
		// For a moment after an eviction, the status of the Deployment is the one before it.
		if i := slices.IndexFunc(pods, func(pod v1.Pod) bool { return !isReady(&pod) }); i >= 0 {
			return fmt.Errorf("%s: pod %s is not ready", name, pods[i].Name)
		}
		return nil
	}
}

// noPodReleased is a check that no pod is released from its ReplicaSet.
func (s *scenario) noPodReleased() error {
	if released := s.auditor.Released(); len(released) > 0 {
		return fmt.Errorf("released: %q", released)
	}
	return nil
}

// released returns a check that `want` pods of this app are released from their ReplicaSets.
func (s *scenario) released(app string, want int) func() error {
	return func() error {
		got := 0
		for _, record := range s.seen.all(app) {
			if !record.released.IsZero() && record.restored.IsZero() && record.leaves.IsZero() {
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
	s.editNode(node, func(n *v1.Node) {
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
		n, err := client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
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
