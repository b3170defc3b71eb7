package gating

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// policyBinding is the name of the MutatingAdmissionPolicyBinding in manifests/overlays/autoscaler.
const policyBinding = "spot-aware-scheduler-capacity"

// checkInterval is the interval at which the controller checks whether the policy is bound.
// effectDelay is the maximum time until the API server applies a new binding.
const (
	checkInterval = 10 * time.Second
	effectDelay   = 5 * time.Second
)

// Installed records whether new pods get the capacity gate. The zero value means that this is
// unknown. It is safe for concurrent use.
type AdmissionPolicy struct {
	since atomic.Pointer[time.Time]
	// missing reports whether the API server answered that there is no such policy.
	missing atomic.Bool
}

// Since returns since when the admission policy has been bound; the zero time if it is not.
func (i *AdmissionPolicy) Since() time.Time {
	if since := i.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Effective reports whether new pods get the gate. It returns true until the API server has
// answered for the first time, so that a new leader does not undo moves that wait for a node.
func (i *AdmissionPolicy) Effective() bool { return !i.missing.Load() }

// Replaces reports whether pods created at that time without a gate would be replaced by gated
// pods. If a pod is newer than the binding, the policy does not apply to it: replacing it would
// never end.
func (i *AdmissionPolicy) Replaces(made time.Time) bool {
	since := i.Since()
	return !since.IsZero() && made.Before(since.Add(effectDelay))
}

// watch checks periodically whether the policy is bound, until ctx is done.
func (i *AdmissionPolicy) watch(ctx context.Context, client kubernetes.Interface) {
	reported := false
	for {
		binding, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, policyBinding, metav1.GetOptions{})
		switch {
		case err == nil:
			i.since.Store(&binding.CreationTimestamp.Time)
			i.missing.Store(false)
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			i.since.Store(nil)
			i.missing.Store(true)
			if !reported {
				klog.FromContext(ctx).Info("Admission policy not bound, new pods get no capacity gate; apply manifests/overlays/autoscaler", "err", err)
			}
		}
		reported = err != nil
		select {
		case <-time.After(checkInterval):
		case <-ctx.Done():
			return
		}
	}
}
