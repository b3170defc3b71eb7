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

// The names that users write and read; spelled out, so that a change of a constant in the code does not go unnoticed.
const (
	minOnDemand        = "spot-aware-scheduler.io/min-on-demand"
	fallbackAfter      = "spot-aware-scheduler.io/fallback-after"
	surgeAnnotation    = "spot-aware-scheduler.io/surge"
	deletionCost       = "controller.kubernetes.io/pod-deletion-cost"
	interruptionTaint  = "spot-aware-scheduler.io/interruption"
	deadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"
	stateAnnotation    = "spot-aware-scheduler.io/interruption-state"
	// reclaimed and advised are what the AWS node termination handler sets.
	reclaimed = "aws-node-termination-handler/spot-itn"
	advised   = "aws-node-termination-handler/rebalance-recommendation"
)

// split is where the pods of an app stand.
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

// annotated is an edit that sets an annotation of the Deployment.
func annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[key] = value }
}

// onlyOn is an edit that keeps the pods off all nodes but those with this label.
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

// protect makes a PodDisruptionBudget of the app and has the test fail when it is broken: when fewer of so many replicas are ready than it
// asks for.
func (s *scenario) protect(app string, replicas int, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	s.budget(app, app, spec)
	least := 0
	scaled := func(value *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true) // as the disruption controller rounds
		s.must(err)
		return n
	}
	if spec.MinAvailable != nil {
		least = scaled(spec.MinAvailable)
	} else {
		least = replicas - scaled(spec.MaxUnavailable)
	}
	s.seen.promise(app, least)
}

// budget makes a PodDisruptionBudget of the app and returns when it has been worked out.
func (s *scenario) budget(name, app string, spec policyv1.PodDisruptionBudgetSpec) {
	s.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	budgets := client.PolicyV1().PodDisruptionBudgets(s.namespace)
	_, err := budgets.Create(s.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(soon, func() error {
		b, err := budgets.Get(s.ctx, name, metav1.GetOptions{})
		if err == nil && b.Status.ObservedGeneration < b.Generation {
			err = fmt.Errorf("PodDisruptionBudget %s has not been worked out", name)
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

// is returns a check that the pods of app stand like this and are all ready.
func (s *scenario) is(app string, want split) func() error {
	return s.are(map[string]split{app: want})
}

// are returns a check that the pods of these apps stand like this and that all that do not wait are ready.
func (s *scenario) are(want map[string]split) func() error {
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

// whole returns a check that the Deployment has all the pods that it wants and no other pod has its label, and that no replica count was
// changed.
func (s *scenario) whole(name string, replicas int) func() error {
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
			return fmt.Errorf("%s: wants %d replicas, has %d pods, status %+v, want %d of all", name, *d.Spec.Replicas, len(pods), status, replicas)
		}
		return nil
	}
}

// nothingReleased is a check that no pod is out of its ReplicaSet.
func (s *scenario) nothingReleased() error {
	if released := s.auditor.Released(); len(released) > 0 {
		return fmt.Errorf("released: %q", released)
	}
	return nil
}

// released returns a check that so many pods of this app are out of their ReplicaSets.
func (s *scenario) released(app string, want int) func() error {
	return func() error {
		got := 0
		for _, at := range s.seen.all(app) {
			if !at.released.IsZero() && at.restored.IsZero() && at.leaves.IsZero() {
				got++
			}
		}
		if got != want {
			return fmt.Errorf("%s: %d pods are released, want %d", app, got, want)
		}
		return nil
	}
}

// tainted is an edit that sets a taint which keeps no pod off by itself.
func tainted(key string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: "test", Effect: v1.TaintEffectPreferNoSchedule})
	}
}

// untainted is an edit that takes a taint off.
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

// notice announces the end of a node as people and webhooks do, by the project's own taint and annotation. It returns the deadline, which is
// a whole second.
func (s *scenario) notice(node string, left time.Duration) time.Time {
	s.Helper()
	deadline := time.Now().Add(left).Truncate(time.Second)
	s.announce(node, deadline.UTC().Format(time.RFC3339))
	return deadline
}

// announce sets the project's own taint and annotation, with a deadline that may be none.
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

// marked returns a check of whether the node has the project's taint; without it there is no deadline either.
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
