//go:build skew

package controller

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The controller responds to EvictionRequests of Kubernetes 1.37 (KEP-4563, alpha). The API server
// is real and validates all writes. Kubernetes' own evictionrequest-controller is not merged yet.
// evictionController implements the part of its API documentation that these tests need.

func init() {
	alphaFlags = []string{"--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"}
}

const (
	surgeResponder = "spot-aware-scheduler.io/surge"
	evictor        = "imperative-eviction.k8s.io/evictor"
)

var (
	evictionRequestResource = schema.GroupVersionResource{Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictionrequests"}
	evictionResource        = schema.GroupVersionResource{Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictions"}
)

// startResponder adds our responder to the pods of the app and grants the controller the rights in
// manifests/overlays/eviction-requests. It starts the controller and the simulated controller, and
// returns the client for EvictionRequests.
func (s *scenario) startResponder(app string, with live.Settings) dynamic.Interface {
	s.Helper()
	s.PatchDeployment(app, `{"spec":{"template":{"spec":{"evictionResponders":[{"name":"`+surgeResponder+`","priority":10000}]}}}}`)
	s.Eventually(30*time.Second, s.rolledOut(app))
	overlay := filepath.Join(controlPlane.Root, "manifests", "overlays", "eviction-requests")
	out, err := exec.CommandContext(s.Ctx, filepath.Join(controlPlane.Root, ".local", "bin", "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"apply", "-k", overlay).CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	own, err := dynamic.NewForConfig(controlPlane.Config())
	s.Must(err)
	with["drain.evictionRequests"] = true
	s.StartController(with)
	in := &evictionController{own}
	ctx, cancel := context.WithCancel(s.Ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := in.sync(ctx, s.Namespace); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.Errorf("the simulated evictionrequest-controller: %v", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	s.Cleanup(func() { cancel(); <-ended })
	return own
}

// rolledOut returns a check that the app's latest change is rolled out.
func (s *scenario) rolledOut(app string) func() error {
	return func() error {
		if d := s.Deployment(app); d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas {
			return fmt.Errorf("%s is not rolled out: generation %d, status %+v", app, d.Generation, d.Status)
		}
		return s.complete(app, 1)()
	}
}

// request creates an EvictionRequest for the app's pod and returns the pod's name.
func (s *scenario) request(own dynamic.Interface, app string) string {
	s.Helper()
	pod := s.podOf(app)
	_, err := own.Resource(evictionRequestResource).Namespace(s.Namespace).Create(s.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
		"metadata": map[string]any{"name": app},
		"spec": map[string]any{
			"target":    map[string]any{"pod": map[string]any{"name": pod.Name, "uid": string(pod.UID)}},
			"requester": "example.com/test", "intent": "Eviction",
		},
	}}, metav1.CreateOptions{})
	s.Must(err)
	return pod.Name
}

// gone returns a check that a pod does not exist.
func (s *scenario) gone(pod string) func() error {
	return func() error {
		_, err := client.CoreV1().Pods(s.Namespace).Get(s.Ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pod %s: %v, want it deleted", pod, err)
	}
}

// hasResponse returns a check that the responder with this name has written this message and is in
// this state.
func (s *scenario) hasResponse(own dynamic.Interface, pod, responder, state, message string) func() error {
	return func() error {
		e, err := own.Resource(evictionResource).Namespace(s.Namespace).Get(s.Ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got, status := entryOf(e, "targetResponders", responder)["state"], entryOf(e, "responders", responder)
		if got != state || status["message"] != message {
			return fmt.Errorf("%s is %v with message %v, want %s with %s", responder, got, status["message"], state, message)
		}
		return nil
	}
}

// TestEvictionRequest: a single replica whose budget allows no eviction is replaced first and
// then evicted. Its Service always has a ready endpoint.
func TestEvictionRequest(t *testing.T) {
	s := start(t, live.OnDemand(2, 5)...)
	s.Deploy("one", 1)
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))
	own := s.startResponder("one", interruptionsOnly())
	s.protect("one", 1, maxUnavailable("0"))
	s.serve("one", 1)

	began := time.Now()
	pod := s.request(own, "one")
	s.Eventually(30*time.Second, s.gone(pod))
	t.Logf("evicted %s after the request", time.Since(began).Round(time.Millisecond))
	s.Eventually(soon, s.complete("one", 1))
	s.Eventually(soon, s.Moved(1, 1, "surge", "eviction-request"))
}

// TestEvictionRequestCancelled: the controller restores the released pod, and the pod serves
// all the time.
func TestEvictionRequestCancelled(t *testing.T) {
	s := start(t, live.OnDemand(2, 5)...)
	s.Deploy("one", 1)
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))
	s.PatchDeployment("one", `{"spec":{"minReadySeconds":15}}`) // keeps the surge in progress
	own := s.startResponder("one", interruptionsOnly())
	s.protect("one", 1, maxUnavailable("0"))
	s.serve("one", 1)

	pod := s.request(own, "one")
	s.Eventually(soon, s.released("one", 1))
	s.Eventually(soon, s.hasResponse(own, pod, surgeResponder, "Active", "its replacement starts; the pod is evicted when the replacement is ready"))
	s.Must(own.Resource(evictionRequestResource).Namespace(s.Namespace).Delete(s.Ctx, "one", metav1.DeleteOptions{}))
	s.Eventually(soon, s.noPodReleased)
	s.Eventually(40*time.Second, s.complete("one", 1))
	if _, err := client.CoreV1().Pods(s.Namespace).Get(s.Ctx, pod, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	s.Eventually(soon, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "eviction-request", "outcome": "restored"}))
}

// TestEvictionRequestWithoutRoom: if no replacement can start in time, Kubernetes activates the
// next responder.
func TestEvictionRequestWithoutRoom(t *testing.T) {
	s := start(t, live.OnDemand(1, 1)...)
	s.Deploy("one", 1)
	s.Eventually(soon, s.HasReadySplit("one", split{OnDemand: 1}))
	s.PatchDeployment("one", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}}`) // no node has room beside the pod
	with := interruptionsOnly()
	with["migration.surgeTimeout"] = "10s"
	own := s.startResponder("one", with)
	pod := s.request(own, "one")
	s.Eventually(30*time.Second, s.hasResponse(own, pod, surgeResponder, "Completed", "no replacement could start within 10s"))
	s.Eventually(30*time.Second, s.gone(pod)) // the next responder evicts at once
	s.Eventually(soon, s.complete("one", 1))
}

// evictionController replaces Kubernetes' evictionrequest-controller, with its default responder.
type evictionController struct{ own dynamic.Interface }

func (in *evictionController) sync(ctx context.Context, namespace string) error {
	requests, err := in.own.Resource(evictionRequestResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, request := range requests.Items {
		pod, _, _ := unstructured.NestedString(request.Object, "spec", "target", "pod", "name")
		if intent, _, _ := unstructured.NestedString(request.Object, "spec", "intent"); intent != "Eviction" {
			continue
		}
		wanted[pod] = true
		if err := in.createEviction(ctx, namespace, pod, &request); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	evictions, err := in.own.Resource(evictionResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range evictions.Items {
		if err := in.writeNextStatus(ctx, &e, wanted[e.GetName()]); err != nil {
			return err
		}
	}
	return nil
}

// createEviction creates the Eviction of a request, with the name of the pod.
func (in *evictionController) createEviction(ctx context.Context, namespace, pod string, request *unstructured.Unstructured) error {
	target, _, err := unstructured.NestedMap(request.Object, "spec", "target")
	if err != nil {
		return err
	}
	_, err = in.own.Resource(evictionResource).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction",
		"metadata": map[string]any{"name": pod}, "spec": map[string]any{"target": target},
	}}, metav1.CreateOptions{})
	return err
}

// writeNextStatus writes the next status of an Eviction, if there is one.
func (in *evictionController) writeNextStatus(ctx context.Context, e *unstructured.Unstructured, wanted bool) error {
	namespace, name := e.GetNamespace(), e.GetName()
	conditions, _, err := unstructured.NestedSlice(e.Object, "status", "conditions")
	if err != nil || len(conditions) > 0 {
		return err // the Eviction has ended
	}
	now := time.Now().UTC().Format(time.RFC3339)
	end := func(condition, reason, state string) error {
		entryOf(e, "targetResponders", active(e))["state"] = state
		conditions := []any{map[string]any{"type": condition, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}}
		if err := unstructured.SetNestedSlice(e.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		return in.write(ctx, e)
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	gone := apierrors.IsNotFound(err)
	switch turn := active(e); {
	case err != nil && !gone:
		return err
	case turn == "" && gone:
		return nil
	case turn == "": // the first status lists the pod's responders
		raw, err := in.own.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		named, _, err := unstructured.NestedSlice(raw.Object, "spec", "evictionResponders")
		if err != nil {
			return err
		}
		targets := append(named, map[string]any{"name": evictor, "priority": int64(100)})
		var statuses []any
		for i, target := range targets {
			target, status := target.(map[string]any), map[string]any{}
			target["state"], status["name"] = "Inactive", target["name"]
			if i == 0 {
				target["state"], status["startTime"] = "Active", now
			}
			statuses = append(statuses, status)
		}
		e.Object["status"] = map[string]any{"observedGeneration": int64(1), "targetResponders": targets, "responders": statuses}
		return in.write(ctx, e)
	case gone:
		return end("TargetEvicted", "PodDeleted", "Interrupted")
	case !wanted:
		return end("Failed", "CanceledDueToNoRequesters", "Canceled")
	case turn == evictor:
		err := client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
		if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
		}
		return nil
	case entryOf(e, "responders", turn)["completionTime"] != nil:
		entryOf(e, "targetResponders", turn)["state"] = "Completed"
		entryOf(e, "targetResponders", evictor)["state"] = "Active"
		entryOf(e, "responders", evictor)["startTime"] = now
		return in.write(ctx, e)
	}
	return nil
}

func (in *evictionController) write(ctx context.Context, e *unstructured.Unstructured) error {
	_, err := in.own.Resource(evictionResource).Namespace(e.GetNamespace()).UpdateStatus(ctx, e, metav1.UpdateOptions{})
	return err
}

// entryOf returns the entry with a name in a list of an Eviction's status, for reading and
// writing. It is empty if there is none.
func entryOf(e *unstructured.Unstructured, list, name string) map[string]any {
	status, _ := e.Object["status"].(map[string]any)
	entries, _ := status[list].([]any)
	i := slices.IndexFunc(entries, func(entry any) bool { return entry.(map[string]any)["name"] == name })
	if i < 0 {
		return map[string]any{}
	}
	return entries[i].(map[string]any)
}

// active returns the name of the active responder, or "" if there is none.
func active(e *unstructured.Unstructured) string {
	for _, name := range []string{surgeResponder, evictor} {
		if entryOf(e, "targetResponders", name)["state"] == "Active" {
			return name
		}
	}
	return ""
}
