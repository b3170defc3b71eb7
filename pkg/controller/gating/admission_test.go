package gating

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestAdmissionPolicy(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	client := fake.NewClientset(&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policyBinding, CreationTimestamp: metav1.NewTime(at)}})
	var i AdmissionPolicy
	if !i.GatesNewPods() {
		t.Error("the gate counts as absent before the API server has answered")
	}
	if i.GatesReplacement(at.Add(-time.Hour)) || i.GatesReplacement(time.Time{}) {
		t.Error("pods are replaced without a known policy")
	}
	go i.watch(t.Context(), client)
	w := &world{t: t}
	w.until("the policy is bound", func() bool { return i.GatesReplacement(at) })
	if !i.GatesNewPods() || !i.GatesReplacement(time.Time{}) {
		t.Error("the policy is bound and not in effect")
	}
	for made, want := range map[time.Duration]bool{-time.Hour: true, time.Second: true, time.Minute: false} {
		if got := i.GatesReplacement(at.Add(made)); got != want {
			t.Errorf("a pod created %s after the policy is replaced: %v, want %v", made, got, want)
		}
	}
}

// The policy counts as missing when two checks some seconds apart find none.
func TestMissingAdmissionPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		missing time.Duration // after the first check
		want    bool
	}{"for a moment": {15 * time.Second, true}, "permanently": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policyBinding, CreationTimestamp: metav1.Now()}})
				began := time.Now()
				client.PrependReactor("get", "mutatingadmissionpolicybindings", func(clienttesting.Action) (bool, runtime.Object, error) {
					if since := time.Since(began); since < 5*time.Second || since > test.missing {
						return false, nil, nil
					}
					return true, nil, apierrors.NewNotFound(v1.Resource("mutatingadmissionpolicybindings"), policyBinding)
				})
				var p AdmissionPolicy
				go p.watch(t.Context(), client)
				for time.Since(began) < 35*time.Second {
					time.Sleep(time.Second)
					synctest.Wait()
					if time.Since(began) < 15*time.Second && !p.GatesNewPods() || test.want && !p.GatesNewPods() {
						t.Fatalf("the policy counts as missing after %s", time.Since(began))
					}
				}
				if got := p.GatesNewPods(); got != test.want || p.GatesReplacement(time.Time{}) != test.want {
					t.Errorf("the policy counts as bound: %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestBetaAdmissionPolicy checks an API server before Kubernetes 1.36, which serves only version
// v1beta1 of the binding.
func TestBetaAdmissionPolicy(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	client := fake.NewClientset(&admissionv1beta1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policyBinding, CreationTimestamp: metav1.NewTime(at)},
	})
	var policy AdmissionPolicy
	go policy.watch(t.Context(), client)
	(&world{t: t}).until("the policy is bound", func() bool { return policy.GatesReplacement(at) })
	if !policy.GatesNewPods() {
		t.Error("the policy is bound and not in effect")
	}
}

// With the webhook, its configuration counts and the policy does not.
func TestWebhookConfiguration(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	meta := metav1.ObjectMeta{Name: webhookConfiguration, CreationTimestamp: metav1.NewTime(at)}
	for webhook, object := range map[bool]runtime.Object{
		true: &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta}, false: &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta},
	} {
		synctest.Test(t, func(t *testing.T) {
			counts, other := AdmissionPolicy{Webhook: webhook}, AdmissionPolicy{Webhook: !webhook}
			for _, policy := range []*AdmissionPolicy{&counts, &other} {
				go policy.watch(t.Context(), fake.NewClientset(object))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !counts.GatesNewPods() || !counts.GatesReplacement(at) || counts.GatesReplacement(at.Add(time.Minute)) {
				t.Errorf("webhook %t: the object does not count", webhook)
			}
			if other.GatesNewPods() || other.GatesReplacement(at) {
				t.Errorf("webhook %t: the object counts", !webhook)
			}
		})
	}
}

// An API server that has just started forbids requests for a moment. That does not mean that the
// policy is gone.
func TestForbiddenAdmissionPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policyBinding, CreationTimestamp: metav1.Now()}})
		began := time.Now()
		client.PrependReactor("get", "mutatingadmissionpolicybindings", func(clienttesting.Action) (bool, runtime.Object, error) {
			if since := time.Since(began); since < 5*time.Second || since > 25*time.Second && since < 35*time.Second {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(v1.Resource("mutatingadmissionpolicybindings"), policyBinding, errors.New("RBAC: clusterrole not found"))
		})
		var p AdmissionPolicy
		go p.watch(t.Context(), client)
		for time.Since(began) < 65*time.Second {
			time.Sleep(time.Second)
			synctest.Wait()
			if !p.GatesNewPods() || !p.GatesReplacement(time.Time{}) {
				t.Fatalf("the policy counts as missing after %s", time.Since(began))
			}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if p.GatesNewPods() || p.GatesReplacement(time.Time{}) {
			t.Error("the policy counts as bound although the check is forbidden for long")
		}
	})
}

// A dry run warns only if pods wait for it.
func TestWarnDryRun(t *testing.T) {
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policyBinding}}
	for want, client := range map[int]*fake.Clientset{0: fake.NewClientset(), 1: fake.NewClientset(binding)} {
		var log bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		WarnDryRun(ctx, client, time.Minute)
		if got := strings.Count(log.String(), "Warning: the admission policy gates new pods"); got != want {
			t.Errorf("%d warnings, want %d: %s", got, want, log.String())
		}
	}
}
