package transform

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// PodTrimmer trims the pods in the caches of a scheduler, where they use most of the memory. For a
// bound pod, a scheduler needs the resources that the pod occupies on its node, and the fields that
// affinity and spreading of other pods refer to. PodTrimmer drops how the containers are started
// and their status. It shares equal parts between the pods of one controller. It retains all fields
// of a pod without a node except managedFields: all plugins read them, and extenders receive them.
//
// Its Trim is a cache.TransformFunc for one informer. It never changes the pod that it is given,
// and returns an already trimmed pod unchanged. The zero value is ready for use.
type PodTrimmer struct {
	// forMoves retains the fields that the controller needs to move pods.
	forMoves bool
	// controllers contains the most recently trimmed pod of each controller.
	controllers latest[v1.Pod]
}

// NewMovedPodTrimmer returns a PodTrimmer for an informer of spot-controller. It also retains the
// fields that show whether a pod is ready and may be moved: its readiness, all annotations and
// emptyDir volumes.
func NewMovedPodTrimmer() *PodTrimmer {
	return &PodTrimmer{forMoves: true}
}

// Trim returns a trimmed copy of a pod. It returns any other object unchanged.
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
	if wholeIfEqual(pod, &trimmed) == pod {
		return pod, nil
	}
	if trimmed.Spec.NodeName != "" {
		t.share(&trimmed)
	}
	return &trimmed, nil
}

func (t *PodTrimmer) trimBound(pod *v1.Pod) {
	pod.Annotations = filterKeys(pod.Annotations, func(key string) bool {
		return t.forMoves || key == v1.MirrorPodAnnotationKey || strings.HasPrefix(key, spot.Domain)
	})
	spec, status := &pod.Spec, &pod.Status
	status.ContainerStatuses = resizedStatuses(status.ContainerStatuses, spec.Containers, func(*v1.Container) bool { return true })
	status.InitContainerStatuses = resizedStatuses(status.InitContainerStatuses, spec.InitContainers, func(c *v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
	spec.Containers, spec.InitContainers = schedulingFields(spec.Containers), schedulingFields(spec.InitContainers)
	spec.EphemeralContainers, status.EphemeralContainerStatuses = nil, nil
	spec.Volumes = filtered(spec.Volumes, func(v *v1.Volume) bool {
		return v.ConfigMap == nil && v.Secret == nil && (t.forMoves || v.EmptyDir == nil) && v.DownwardAPI == nil && v.Projected == nil
	})
	spec.DNSConfig, spec.HostAliases, spec.SecurityContext, spec.ImagePullSecrets, spec.ReadinessGates = nil, nil, nil, nil, nil
	status.Conditions = filtered(status.Conditions, func(c *v1.PodCondition) bool {
		switch c.Type {
		case v1.PodReady:
			return t.forMoves
		case v1.ContainersReady, v1.PodInitialized, v1.PodReadyToStartContainers:
			return false
		}
		return true
	})
	status.Message, status.HostIP, status.HostIPs, status.PodIP, status.PodIPs = "", "", nil, "", nil
}

// FailedPod is the cache.TransformFunc of the controller's informer of failed pods. It retains only
// what identifies the pod, its owners, the reason of its end, and the fields that rules of the
// policy match. It returns any other object unchanged.
func FailedPod(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
			Annotations: filterKeys(pod.Annotations, func(key string) bool {
				return key == v1.MirrorPodAnnotationKey || strings.HasPrefix(key, spot.Domain)
			}),
		},
		Spec: v1.PodSpec{
			SchedulerName: pod.Spec.SchedulerName, PriorityClassName: pod.Spec.PriorityClassName, Priority: pod.Spec.Priority,
		},
		Status: v1.PodStatus{
			Phase: pod.Status.Phase, QOSClass: pod.Status.QOSClass,
			Conditions: filtered(pod.Status.Conditions, func(c *v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }),
		},
	}, nil
}

func schedulingFields(containers []v1.Container) []v1.Container {
	if len(containers) == 0 {
		return nil
	}
	all := make([]v1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		all[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy,
			RestartPolicy: c.RestartPolicy}
	}
	return all
}

// resizedStatuses returns the statuses of containers whose resources differ from the specification.
// While a pod is being resized, the larger resources count (PodRequests in
// k8s.io/component-helpers/resource). It considers only containers for which counts returns true.
func resizedStatuses(statuses []v1.ContainerStatus, containers []v1.Container, counts func(*v1.Container) bool) []v1.ContainerStatus {
	var kept []v1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		c := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Name })
		if c < 0 || s.Resources == nil || !counts(&containers[c]) {
			continue
		}
		requests := containers[c].Resources.Requests
		if equality.Semantic.DeepEqual(s.Resources.Requests, requests) && equality.Semantic.DeepEqual(s.AllocatedResources, requests) {
			continue
		}
		kept = append(kept, v1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources, Resources: s.Resources})
	}
	return kept
}

// share replaces parts of the pod by equal parts of the last trimmed pod of the same controller.
func (t *PodTrimmer) share(pod *v1.Pod) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return
	}
	t.controllers.replace(string(controller.UID), pod, func(other *v1.Pod) {
		// Compare every field, because the controller reference is a claim of the pod's writer.
		shareFields(&pod.ObjectMeta, &other.ObjectMeta)
		shareFields(&pod.Spec, &other.Spec)
		shareFields(&pod.Status, &other.Status)
	})
}

// filtered returns the items that keep accepts, in a slice without spare capacity.
func filtered[T any](items []T, keep func(*T) bool) []T {
	var kept []T
	for i := range items {
		if keep(&items[i]) {
			kept = append(kept, items[i])
		}
	}
	if len(kept) == len(items) {
		return items
	}
	return slices.Clone(kept) // without the spare capacity of append
}
