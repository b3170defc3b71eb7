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

// lookEvery is how often it is looked whether the policy is bound, and effectAfter is how long after that the API server takes at most to
// add gates.
const (
	lookEvery   = 10 * time.Second
	effectAfter = 5 * time.Second
)

// Installed says whether new pods get the capacity gate. The zero value says that they do not. It is safe for concurrent use.
type Installed struct {
	since atomic.Pointer[time.Time]
	// missing: there is no such policy, as far as the API server has been asked.
	missing atomic.Bool
}

// Since returns since when the admission policy has been bound; the zero time if it is not.
func (i *Installed) Since() time.Time {
	if since := i.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Effective reports whether new pods get the gate. It is true until the API server has been asked for the first time, so that a new leader
// does not undo the moves that wait for a node.
func (i *Installed) Effective() bool { return !i.missing.Load() }

// Replaces reports whether pods that were made at that time without a gate would be replaced by gated ones. A pod that is younger than the policy
// shows that the policy does not apply to its like: replacing it would never end.
func (i *Installed) Replaces(made time.Time) bool {
	since := i.Since()
	return !since.IsZero() && made.Before(since.Add(effectAfter))
}

// watch looks again and again whether the policy is bound, until ctx is done.
func (i *Installed) watch(ctx context.Context, client kubernetes.Interface) {
	told := false
	for {
		binding, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, policyBinding, metav1.GetOptions{})
		switch {
		case err == nil:
			i.since.Store(&binding.CreationTimestamp.Time)
			i.missing.Store(false)
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			i.since.Store(nil)
			i.missing.Store(true)
			if !told {
				klog.FromContext(ctx).Info("New pods get no capacity gate: apply manifests/overlays/autoscaler", "err", err)
			}
		}
		told = err != nil
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
	}
}
