package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodTrimmer trims the pods in the caches of a scheduler, which are most of what it has. Of a pod that has its node a scheduler needs what it
// occupies there, and what others are to be near to or far from. How its containers are started and how they are is dropped, and what it
// has in common with the other pods of its controller is held once for all of them. A pod that waits for a node is kept whole, except
// managedFields: all plugins read it, and extenders are sent it.
//
// Its Trim is a cache.TransformFunc. It never changes what it is given, and returns what it has returned before as it is.
type PodTrimmer struct {
	// moves keeps what a program reads that moves pods.
	moves bool
	mu    sync.Mutex
	// latest has one trimmed pod of each controller, for as long as a cache holds it.
	latest map[types.UID]weak.Pointer[v1.Pod]
	// sweepAt is how large latest gets before controllers without pods are removed from it.
	sweepAt int
}

const minSweep = 1_000

// NewPodTrimmer returns a PodTrimmer for one informer.
func NewPodTrimmer() *PodTrimmer {
	return &PodTrimmer{latest: map[types.UID]weak.Pointer[v1.Pod]{}, sweepAt: minSweep}
}

// NewMovedPodTrimmer returns a PodTrimmer for an informer of spot-controller. It keeps what says whether a pod serves and may be
// moved, too: its readiness, all annotations and emptyDir volumes.
func NewMovedPodTrimmer() *PodTrimmer {
	t := NewPodTrimmer()
	t.moves = true
	return t
}

// Trim returns the pod obj trimmed, and everything else as it is.
func (t *PodTrimmer) Trim(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := *pod
	trimmed.ManagedFields = nil
	if trimmed.Spec.NodeName != "" {
		t.trimBound(&trimmed)
	}
	if changed(pod, &trimmed) == pod {
		return pod, nil
	}
	if trimmed.Spec.NodeName != "" {
		t.share(&trimmed)
	}
	return &trimmed, nil
}

// trimBound drops from a pod with a node what is not read of it.
func (t *PodTrimmer) trimBound(pod *v1.Pod) {
	pod.Annotations = only(pod.Annotations, func(key string) bool {
		return t.moves || key == v1.MirrorPodAnnotationKey || strings.HasPrefix(key, annotationDomain)
	})
	spec, status := &pod.Spec, &pod.Status
	status.ContainerStatuses = resized(status.ContainerStatuses, spec.Containers, func(*v1.Container) bool { return true })
	status.InitContainerStatuses = resized(status.InitContainerStatuses, spec.InitContainers, func(c *v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
	spec.Containers, spec.InitContainers = occupants(spec.Containers), occupants(spec.InitContainers)
	spec.EphemeralContainers, status.EphemeralContainerStatuses = nil, nil
	spec.Volumes = filtered(spec.Volumes, func(v *v1.Volume) bool {
		return v.ConfigMap == nil && v.Secret == nil && (t.moves || v.EmptyDir == nil) && v.DownwardAPI == nil && v.Projected == nil
	})
	spec.DNSConfig, spec.HostAliases, spec.SecurityContext, spec.ImagePullSecrets, spec.ReadinessGates = nil, nil, nil, nil, nil
	status.Conditions = filtered(status.Conditions, func(c *v1.PodCondition) bool {
		switch c.Type {
		case v1.PodReady:
			return t.moves
		case v1.ContainersReady, v1.PodInitialized, v1.PodReadyToStartContainers:
			return false
		}
		return true
	})
	status.Message, status.HostIP, status.HostIPs, status.PodIP, status.PodIPs = "", "", nil, "", nil
}

// occupants returns of containers what they occupy on their node.
func occupants(containers []v1.Container) []v1.Container {
	if len(containers) == 0 {
		return nil
	}
	all := make([]v1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		all[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy}
	}
	return all
}

// resized returns the statuses of containers whose resources are other than the specification's: while a pod is being resized, the larger
// ones count (PodRequests in k8s.io/component-helpers/resource). Only those of containers that counts reports are read.
func resized(statuses []v1.ContainerStatus, containers []v1.Container, counts func(*v1.Container) bool) []v1.ContainerStatus {
	var kept []v1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		c := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Name })
		if c < 0 || s.Resources == nil || !counts(&containers[c]) {
			continue
		}
		asked := containers[c].Resources.Requests
		if equality.Semantic.DeepEqual(s.Resources.Requests, asked) && equality.Semantic.DeepEqual(s.AllocatedResources, asked) {
			continue
		}
		kept = append(kept, v1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources, Resources: s.Resources})
	}
	return kept
}

// share lets pod have what is equal in the pod of its controller that was trimmed last: objects in caches are never changed.
func (t *PodTrimmer) share(pod *v1.Pod) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.latest[controller.UID].Value(); other != nil {
		shareParts(pod, other)
	} else if len(t.latest) >= t.sweepAt {
		maps.DeleteFunc(t.latest, func(_ types.UID, pod weak.Pointer[v1.Pod]) bool { return pod.Value() == nil })
		t.sweepAt = max(minSweep, 2*len(t.latest))
	}
	t.latest[controller.UID] = weak.Make(pod)
}

// shareParts gives pod the parts of other that are equal to its own. All of them are compared: what owns a pod is what its writer says.
func shareParts(pod, other *v1.Pod) {
	sameText(&pod.Namespace, other.Namespace)
	sameText(&pod.GenerateName, other.GenerateName)
	same(&pod.Labels, other.Labels)
	same(&pod.Annotations, other.Annotations)
	same(&pod.OwnerReferences, other.OwnerReferences)
	same(&pod.Finalizers, other.Finalizers)

	mine, theirs := &pod.Spec, &other.Spec
	same(&mine.Containers, theirs.Containers)
	same(&mine.InitContainers, theirs.InitContainers)
	same(&mine.Volumes, theirs.Volumes)
	same(&mine.NodeSelector, theirs.NodeSelector)
	same(&mine.Affinity, theirs.Affinity)
	same(&mine.Tolerations, theirs.Tolerations)
	same(&mine.TopologySpreadConstraints, theirs.TopologySpreadConstraints)
	same(&mine.Overhead, theirs.Overhead)
	sameText(&mine.ServiceAccountName, theirs.ServiceAccountName)
	sameText(&mine.DeprecatedServiceAccount, theirs.DeprecatedServiceAccount)
	sameText(&mine.SchedulerName, theirs.SchedulerName)
	sameText(&mine.PriorityClassName, theirs.PriorityClassName)
	same(&mine.Priority, theirs.Priority)
	same(&mine.PreemptionPolicy, theirs.PreemptionPolicy)
	same(&mine.TerminationGracePeriodSeconds, theirs.TerminationGracePeriodSeconds)
	same(&mine.EnableServiceLinks, theirs.EnableServiceLinks)
	sameText(&mine.RestartPolicy, theirs.RestartPolicy)
	sameText(&mine.DNSPolicy, theirs.DNSPolicy)
	sameText(&pod.Status.Phase, other.Status.Phase)
	sameText(&pod.Status.QOSClass, other.Status.QOSClass)
	same(&pod.Status.Conditions, other.Status.Conditions)
}

// sameText is same for texts.
func sameText[T ~string](mine *T, other T) {
	if *mine == other {
		*mine = other
	}
}

// same makes mine the value that it is equal to.
func same[T any](mine *T, other T) {
	if equality.Semantic.DeepEqual(*mine, other) {
		*mine = other
	}
}

// filtered returns the items that keep reports, in a slice without room for more.
func filtered[T any](items []T, keep func(*T) bool) []T {
	n := 0
	for i := range items {
		if keep(&items[i]) {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case len(items):
		return items
	}
	kept := make([]T, 0, n)
	for i := range items {
		if keep(&items[i]) {
			kept = append(kept, items[i])
		}
	}
	return kept
}
