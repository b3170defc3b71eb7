package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Scope selects the pods that a policy applies to. It is the only definition in Go. The admission
// policy in manifests/overlays/autoscaler gates the same pods. PolicyApplies excludes the pods that
// belong on one node.
type Scope struct {
	// Profile is the schedulerName of the pods that spot-aware-scheduler places.
	Profile string
	// Namespaces contains the namespaces whose pods may opt in and keep their scheduler. If it is
	// nil, no pod keeps its scheduler.
	Namespaces corelisters.NamespaceLister
}

// NewScope returns the scope of a profile. Pods keep their scheduler only if the controller removes
// their gates.
func NewScope(profile string, gating bool, namespaces corelisters.NamespaceLister) Scope {
	scope := Scope{Profile: profile}
	if gating {
		scope.Namespaces = namespaces
	}
	return scope
}

// Includes reports whether the policy applies to the pod.
func (s Scope) Includes(pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == s.Profile || s.KeepsScheduler(pod)
}

// KeepsScheduler reports whether the policy applies to the pod although another scheduler places
// it. The label spot.OptInLabel of the pod decides. If it has another value than the two below, or
// is missing, the label of the namespace decides. Pods in kube-system have no policy. The
// manifests opt out the pods of our programs by the label, because they must not wait for
// themselves.
func (s Scope) KeepsScheduler(pod *v1.Pod) bool {
	if s.KeepsNone(pod.Namespace) != "" || pod.Spec.SchedulerName == s.Profile {
		return false
	}
	switch pod.Labels[spot.OptInLabel] {
	case spot.KeepScheduler:
		return true
	case spot.OptOut:
		return false
	}
	namespace, err := s.Namespaces.Get(pod.Namespace)
	return err == nil && namespace.Labels[spot.OptInLabel] == spot.KeepScheduler
}

// IgnoredOptIn returns why the label spot.OptInLabel of the pod has no effect; empty if it has one,
// or if there is no label.
func (s Scope) IgnoredOptIn(pod *v1.Pod) string {
	value, ours := pod.Labels[spot.OptInLabel], pod.Spec.SchedulerName == s.Profile
	why := ""
	switch {
	case value == "" || value == spot.OptOut && !ours || value == spot.KeepScheduler && s.KeepsScheduler(pod):
		return ""
	case value != spot.KeepScheduler && value != spot.OptOut:
		why = fmt.Sprintf("expected %s or %q", spot.KeepScheduler, spot.OptOut)
	case ours:
		why = "the pod names the scheduler " + s.Profile
	default:
		why = s.KeepsNone(pod.Namespace)
	}
	return fmt.Sprintf("label %s=%s on the pod has no effect: %s", spot.OptInLabel, value, why)
}

// KeepsNone returns why spot.KeepScheduler has no effect in a namespace; empty if it may have one.
func (s Scope) KeepsNone(namespace string) string {
	switch {
	case s.Namespaces == nil:
		return "gating.enabled of the controller is false"
	case namespace == metav1.NamespaceSystem:
		return "pods of kube-system do not opt in"
	}
	return ""
}
