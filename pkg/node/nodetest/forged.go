// Package nodetest provides fixtures for tests of packages that read API objects.
package nodetest

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Forged returns pods that a tenant could write to pass them off as siblings of genuine, which must
// have a controller. They use the UID of its controller in another namespace or with another kind.
// A reader of pods must not count them as a replica of genuine's revision, and must not
// panic. Each pod is a copy of genuine (same node, labels and scheduler) with its own UID. All but
// one have their own name. The order is fixed.
func Forged(genuine *v1.Pod) []*v1.Pod {
	changes := map[string]func(*v1.Pod, *metav1.OwnerReference){
		"another-namespace":   func(p *v1.Pod, _ *metav1.OwnerReference) { p.Namespace = "elsewhere" },
		"a-namespace-before":  func(p *v1.Pod, _ *metav1.OwnerReference) { p.Namespace = "aaa" },
		"another-kind":        func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.Kind = "Made" },
		"another-known-kind":  func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.APIVersion, ref.Kind = "v1", "ReplicationController" },
		"another-group":       func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" },
		"no-group":            func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.APIVersion = "" },
		"no-kind":             func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.Kind = "" },
		"empty-uid":           func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.Kind, ref.UID = "Made", "" },
		"empty-reference":     func(_ *v1.Pod, ref *metav1.OwnerReference) { *ref = metav1.OwnerReference{Controller: ref.Controller} },
		"another-made-kind":   func(p *v1.Pod, ref *metav1.OwnerReference) { p.Namespace, ref.Kind = "elsewhere", "Made" },
		"a-name-of-two-parts": func(_ *v1.Pod, ref *metav1.OwnerReference) { ref.Kind, ref.Name = "Made", "a/b" },
		"without-a-name":      func(p *v1.Pod, ref *metav1.OwnerReference) { p.Name, ref.Kind = "", "Made" },
	}
	var forged []*v1.Pod
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		pod := genuine.DeepCopy()
		pod.Name, pod.UID = "forged-"+name, types.UID("forged-"+name)
		for i := range pod.OwnerReferences {
			if ref := &pod.OwnerReferences[i]; ref.Controller != nil && *ref.Controller {
				changes[name](pod, ref)
			}
		}
		forged = append(forged, pod)
	}
	return forged
}
