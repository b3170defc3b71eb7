package controller

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The controller supports users who drain nodes; these tests use `kubectl drain`.

// drains returns the settings of a controller that treats a cordon as a drain and does not
// rebalance.
func drains() live.Settings {
	with := interruptionsOnly()
	with["drain.cordons"] = true
	return with
}

// drain runs `kubectl drain` and returns its duration. The error contains its output.
func (s *scenario) drain(node string, timeout time.Duration) (time.Duration, error) {
	began := time.Now()
	out, err := exec.CommandContext(s.Ctx, filepath.Join(controlPlane.Root, ".local", "bin", "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"drain", node, "--timeout", timeout.String()).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("draining %s: %w: %s", node, err, out)
	}
	return time.Since(began), err
}

// singletons creates three Deployments of one replica, each with a Service and a
// PodDisruptionBudget that allows no eviction. It returns their names.
func (s *scenario) singletons(edits ...func(*appsv1.Deployment)) []string {
	s.Helper()
	apps := []string{"one", "two", "three"}
	for _, app := range apps {
		s.Deploy(app, 1, edits...)
	}
	for _, app := range apps {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
		s.protect(app, 1, maxUnavailable("0"))
		s.serve(app, 1)
	}
	return apps
}

// uncordon removes the cordon of `kubectl drain`.
func (s *scenario) uncordon(node string) {
	s.Helper()
	s.EditNode(node, func(n *v1.Node) { n.Spec.Unschedulable = false })
}

// awaitDrained checks that a node is empty, and waits until each of its singletons was replaced
// first.
func (s *scenario) awaitDrained(node string, singletons []string) {
	s.Helper()
	s.Must(s.empty(node)())
	s.Eventually(soon, s.noPodReleased)
	for _, app := range singletons {
		s.Eventually(soon, s.complete(app, 1))
	}
	s.Eventually(soon, s.Moved(len(singletons), len(singletons), "surge", "drain"))
}

// TestDrainOfSingletons: in plain Kubernetes, the budgets of the singletons block a drain. With
// the controller the drain ends, and every singleton always has a ready endpoint.
func TestDrainOfSingletons(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	apps := s.singletons()
	s.AddNodes(live.OnDemand(2, 5)[1:]...)

	if _, err := s.drain("od-1", 10*time.Second); err == nil || !strings.Contains(err.Error(), "would violate the pod's disruption budget") {
		t.Errorf("the drain without the controller: %v, want an error because of the budgets", err)
	}
	s.uncordon("od-1")

	s.StartController(drains())
	took, err := s.drain("od-1", time.Minute)
	s.Must(err)
	t.Logf("with the controller the drain took %s", took.Round(time.Millisecond))
	s.awaitDrained("od-1", apps)
}

// TestConcurrentDrains: three concurrent drains, two of the same node. The nodes run singletons and
// a workload whose budget allows one eviction at a time.
func TestConcurrentDrains(t *testing.T) {
	s := start(t, live.OnDemand(2, 10)...)
	apps := s.singletons()
	s.Deploy("spared", 4)
	s.Eventually(soon, s.HasReadySplit("spared", split{OnDemand: 4}))
	s.protect("spared", 4, maxUnavailable("1"))
	nodes := live.OnDemand(4, 10)
	s.AddNodes(nodes[2:]...)
	s.StartController(drains())
	var wait sync.WaitGroup
	for _, node := range []string{nodes[0].Name, nodes[1].Name, nodes[0].Name} {
		wait.Go(func() {
			if took, err := s.drain(node, 2*time.Minute); err != nil {
				t.Error(err)
			} else {
				t.Logf("%s: %s", node, took.Round(time.Millisecond))
			}
		})
	}
	wait.Wait()
	s.Eventually(soon, s.noPodReleased)
	for _, app := range apps {
		s.Eventually(soon, s.complete(app, 1))
	}
	s.Eventually(soon, s.complete("spared", 4))
}

// TestCancelledDrain: after an uncordon, the controller restores the pods that it released for
// the drain. They serve all the time. A pod that cannot be replaced first stays, and an event
// states the reason.
func TestCancelledDrain(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	// No replacement is available before the drain is cancelled.
	apps := s.singletons(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 15 })
	s.Deploy("recreated", 1, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	s.Eventually(soon, s.HasReadySplit("recreated", split{OnDemand: 1}))
	s.AddNodes(live.OnDemand(2, 5)[1:]...)
	s.StartController(drains())
	s.EditNode("od-1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	for _, app := range apps {
		s.Eventually(soon, s.released(app, 1))
	}
	s.Eventually(soon, s.HasEvent("recreated", "NotReplacedFirst", "its Deployment's strategy allows no surge"))
	s.uncordon("od-1")
	for _, app := range apps {
		s.Eventually(soon, s.released(app, 0))
	}
	s.Eventually(soon, s.noPodReleased)
	for _, app := range apps {
		s.Eventually(30*time.Second, s.complete(app, 1))
	}
	s.Eventually(soon, s.HasMetric(s.Controller, 3, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "drain", "outcome": "restored"}))
}

// TestDrainOfChangingDeployments: Deployments are deleted, scaled to 0, rolled out or paused
// while their pods are released for a drain. No released pod remains, and no Deployment loses its
// last pod.
func TestDrainOfChangingDeployments(t *testing.T) {
	s := start(t, live.OnDemand(1, 10)...)
	apps := []string{"deleted", "zero", "updated", "paused"}
	for _, app := range apps {
		// No replacement is available before the Deployments change.
		s.Deploy(app, 1, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 15 })
	}
	for _, app := range apps {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
		s.budget(app, app, maxUnavailable("0"))
	}
	for _, app := range []string{"updated", "paused"} {
		s.serve(app, 1)
	}
	s.AddNodes(live.OnDemand(2, 10)[1:]...)
	s.StartController(drains())
	s.EditNode("od-1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	for _, app := range apps {
		s.Eventually(soon, s.released(app, 1))
	}
	s.Must(client.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "deleted", metav1.DeleteOptions{}))
	s.Scale("zero", 0)
	s.SetImage("updated", "c:2")
	s.PatchDeployment("paused", `{"spec":{"paused":true}}`)
	// For a moment, the garbage collector leaves the pod without a controller: it removes the
	// reference to the Deployment before it deletes the ReplicaSet. kubectl drain would refuse the
	// pod, as it refuses any pod without a controller.
	s.Eventually(soon, s.HasReadySplit("deleted", split{}))

	_, err := s.drain("od-1", time.Minute)
	s.Must(err)
	s.Must(s.empty("od-1")())
	s.Eventually(soon, s.noPodReleased)
	for app, want := range map[string]int{"deleted": 0, "zero": 0, "updated": 1, "paused": 1} {
		s.Eventually(30*time.Second, s.HasReadySplit(app, split{OnDemand: want}))
	}
	s.Eventually(soon, s.complete("updated", 1))
	s.Eventually(soon, s.complete("paused", 1))
}

// TestDrainWithoutRelease: if a pod cannot be released, its drain behaves like in plain
// Kubernetes, and an event states the reason. A shared budget of two workloads does not prevent a
// release.
func TestDrainWithoutRelease(t *testing.T) {
	s := start(t, live.OnDemand(1, 10)...)
	refused := []string{"hashed", "guarded"}
	for _, app := range append([]string{"first", "second"}, refused...) {
		s.Deploy(app, 1)
	}
	for _, app := range refused {
		s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1}))
		s.protect(app, 1, maxUnavailable("0"))
	}
	s.Eventually(soon, s.HaveReadySplits(map[string]split{"first": {OnDemand: 1}, "second": {OnDemand: 1}}))
	_, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).Create(s.Ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "both"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(2)),
			Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"first", "second"}},
			}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.serve("first", 1)
	s.serve("second", 1)
	hash := s.podOf("hashed").Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	_, err = client.CoreV1().Services(s.Namespace).Create(s.Ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hashed"},
		Spec: v1.ServiceSpec{
			Selector: map[string]string{"app": "hashed", appsv1.DefaultDeploymentUniqueLabelKey: hash}, Ports: []v1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.forbidOwnerChanges("guarded")
	s.AddNodes(live.OnDemand(2, 10)[1:]...)
	s.StartController(drains())
	_, err = s.drain("od-1", 30*time.Second)
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("the drain: %v, want an error because of the budgets of the pods that cannot be released", err)
	}
	s.Eventually(soon, s.HasEvent("hashed", "NotReplacedFirst", "pod-template-hash"))
	s.Eventually(soon, s.HasEvent("guarded", "NotReplacedFirst", "the API server refuses to change its label"))
	for _, app := range refused {
		if node := s.podOf(app).Spec.NodeName; node != "od-1" {
			t.Errorf("the pod of %s is on %s", app, node)
		}
	}
	for _, app := range []string{"first", "second"} {
		if node := s.podOf(app).Spec.NodeName; node != "od-2" {
			t.Errorf("the pod of %s is on %s, want it replaced", app, node)
		}
	}
	s.Eventually(soon, s.noPodReleased)
}

// forbidOwnerChanges makes the API server reject every change of the owners of the app's pods, and
// returns when it does.
func (s *scenario) forbidOwnerChanges(app string) {
	s.Helper()
	s.ExpectDenials = true
	name := s.Namespace + "-" + app
	admission := client.AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().Create(s.Ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("object.metadata.namespace != %q || object.metadata.?labels[?'app'].orValue('') != %q || "+
					"object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])", s.Namespace, app),
				Message: "owners do not change here",
				Reason:  ptr.To(metav1.StatusReasonForbidden),
			}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(s.Ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Cleanup(func() {
		ctx := context.Background()
		s.Must(admission.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		s.Must(admission.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	pod := s.podOf(app).Name
	s.Eventually(soon, func() error {
		_, err := client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, pod, types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/ownerReferences"}]`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("a change of the owner: %v, want it forbidden", err)
	})
}
