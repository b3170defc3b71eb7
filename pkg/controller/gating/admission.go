package gating

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// policyBinding is the name of the MutatingAdmissionPolicyBinding in manifests/overlays/autoscaler.
// webhookConfiguration is the name of the MutatingWebhookConfiguration in
// manifests/components/webhook.
const policyBinding, webhookConfiguration = "spot-aware-scheduler-capacity", "spot-aware-scheduler-capacity"

// checkInterval is the interval at which the controller checks whether the policy is bound or the
// webhook configured, and whether the configuration has the authority of its certificate.
// effectDelay is the maximum time until the API server applies a new binding. missingDelay and
// forbiddenDelay are how long the API server must find no policy or refuse the check before the
// policy counts as missing: a policy that is replaced is missing for a moment, and an API server
// that has just started refuses requests until it has loaded the roles.
const (
	checkInterval  = 10 * time.Second
	effectDelay    = 5 * time.Second
	missingDelay   = checkInterval
	forbiddenDelay = 3 * checkInterval
)

// AdmissionPolicy reports whether the admission policy is bound, so that new pods get the capacity
// gate. The zero value means that this is unknown. It is safe for concurrent use.
type AdmissionPolicy struct {
	// Webhook: the webhook gates new pods, and its configuration counts instead of the binding.
	Webhook bool
	// boundSince is when the admission policy was bound; nil if it is not.
	boundSince atomic.Pointer[time.Time]
	// missing reports whether the API server answered repeatedly that there is no such policy.
	missing atomic.Bool
}

// GatesNewPods reports whether new pods get the gate. It returns true until the API server has
// answered, so that a new leader does not undo moves that wait for a node.
func (p *AdmissionPolicy) GatesNewPods() bool { return !p.missing.Load() }

// GatesReplacement reports whether the replacement of a pod that was created at that time without a
// gate gets one. It does not if the pod is newer than the binding: then the policy does not apply
// to such pods, and replacing them would never end. For the zero time it reports whether the policy
// is known to be bound.
func (p *AdmissionPolicy) GatesReplacement(created time.Time) bool {
	since := p.boundSince.Load()
	return since != nil && created.Before(since.Add(effectDelay))
}

// watch checks periodically whether the policy is bound, until ctx is done.
func (p *AdmissionPolicy) watch(ctx context.Context, client kubernetes.Interface) {
	reported, absent := false, time.Duration(0)
	created := bindingCreated
	if p.Webhook {
		created = webhookCreated
	}
	for {
		boundSince, err := created(ctx, client)
		switch {
		case err == nil:
			p.boundSince.Store(&boundSince)
			p.missing.Store(false)
			absent = 0
		case apierrors.IsNotFound(err) && absent < missingDelay, apierrors.IsForbidden(err) && absent < forbiddenDelay:
			absent += checkInterval
			err = nil // what was known before still applies
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			p.boundSince.Store(nil)
			p.missing.Store(true)
			if !reported {
				klog.FromContext(ctx).Info("Admission policy or webhook missing, new pods get no capacity gate; apply its manifests", "err", err)
			}
		}
		reported = err != nil
		if leader.Sleep(ctx, checkInterval) != nil {
			return
		}
	}
}

// WarnDryRun logs a warning if the policy is bound although this controller only runs dry.
func WarnDryRun(ctx context.Context, client kubernetes.Interface, gateTimeout time.Duration) {
	if _, err := bindingCreated(ctx, client); err == nil {
		klog.FromContext(ctx).Info("Warning: the admission policy gates new pods, and a dry run removes no gates. Unless another controller "+
			"leads, each pod waits for gateTimeout", "gateTimeout", gateTimeout)
	}
}

// bindingCreated returns when the policy was bound. Before Kubernetes 1.36, the API server serves
// only the version v1beta1 of the binding.
func bindingCreated(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	binding, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, policyBinding, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return binding.GetCreationTimestamp().Time, err
	}
	beta, err := client.AdmissionregistrationV1beta1().MutatingAdmissionPolicyBindings().Get(ctx, policyBinding, metav1.GetOptions{})
	return beta.GetCreationTimestamp().Time, err
}

func webhookCreated(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	hook, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookConfiguration, metav1.GetOptions{})
	return hook.GetCreationTimestamp().Time, err
}
