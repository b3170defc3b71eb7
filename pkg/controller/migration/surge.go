package migration

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// surgeRules find what prevents the release of pods from their ReplicaSets.
type surgeRules struct {
	snapshot *snapshot.Snapshot
	// hashSelectors and adopters cache what could treat a released pod differently, by namespace.
	hashSelectors map[string][]hashSelector
	adopters      map[string]*workload.Selectors[snapshot.Adopter]
}

func newSurgeRules(s *snapshot.Snapshot) *surgeRules {
	return &surgeRules{s, map[string][]hashSelector{}, map[string]*workload.Selectors[snapshot.Adopter]{}}
}

// CanSurge returns a function that reports whether a live pod of s can be moved by surge, as far as
// s shows. The API server may still refuse it.
func CanSurge(s *snapshot.Snapshot) func(*snapshot.Pod) bool {
	all := newSurgeRules(s)
	return func(pod *snapshot.Pod) bool { return all.obstacle(pod, false) == "" }
}

// NoSurgeReason returns a function that explains why a pod of s can never be moved by surge,
// independent of temporary conditions. It returns "" if the pod can be moved by surge, though
// perhaps not now.
func NoSurgeReason(s *snapshot.Snapshot) func(*snapshot.Pod) string {
	return newSurgeRules(s).permanentObstacle
}

// obstacle explains why a pod cannot be released; "" if it can. unreleasable: the API server has
// refused to release it.
func (r *surgeRules) obstacle(pod *snapshot.Pod, unreleasable bool) string {
	if no := r.permanentObstacle(pod); no != "" {
		return no
	}
	switch {
	case pod.Workload.RollingOut:
		return "a rollout is in progress"
	case !pod.IsReady():
		return "it is not ready"
	case unreleasable:
		return "the API server refuses to change its label"
	}
	return ""
}

// permanentObstacle is obstacle without the temporary conditions.
func (r *surgeRules) permanentObstacle(pod *snapshot.Pod) string {
	if pod.Revision == nil || pod.Revision.ReplicaSet == nil {
		return "it does not belong to a ReplicaSet"
	}
	rs, workload := pod.Revision.ReplicaSet, pod.Workload
	annotations := rs.Annotations
	if workload.Deployment != nil {
		annotations = workload.Deployment.Annotations
	}
	hash, ok := ptr.Deref(rs.Spec.Selector, metav1.LabelSelector{}).MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey]
	switch {
	case !ok || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash:
		return "its ReplicaSet does not select by " + appsv1.DefaultDeploymentUniqueLabelKey
	case workload.Deployment == nil && metav1.GetControllerOfNoCopy(rs) != nil:
		return "its ReplicaSet has a controller that is not a Deployment"
	case annotations[spot.SurgeAnnotation] == "false":
		return spot.SurgeAnnotation + " is false"
	case workload.Deployment != nil && !surges(workload.Deployment):
		return "its Deployment's strategy allows no surge"
	case simulation.Excessive(pod):
		return "it has too many terms of affinity, tolerations and topology spread"
	}
	return cmp.Or(resourceConflict(pod), r.selectorConflict(pod), r.adopterConflict(pod), antiAffinityConflict(pod))
}

// surges reports whether the Deployment's strategy allows a pod to start before another is gone.
func surges(d *appsv1.Deployment) bool {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	if d.Spec.Strategy.RollingUpdate == nil || d.Spec.Strategy.RollingUpdate.MaxSurge == nil {
		return true // the API server's default is 25%, rounded up
	}
	// A percentage of 0 replicas is 0, but without replicas no pod needs a move.
	n, err := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, max(workload.Replicas(d.Spec.Replicas), 1), true)
	return err == nil && n > 0
}

// resourceConflict returns a resource of the pod that two pods cannot use at once; "" if it has
// none. Every persistent volume claim counts: its access mode does not show whether the application
// supports two pods.
func resourceConflict(pod *snapshot.Pod) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return "it has a persistent volume"
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].Ports, func(port v1.ContainerPort) bool { return port.HostPort != 0 }) {
				return "it uses a host port"
			}
		}
	}
	return ""
}

// hashSelector is a Service or a PodDisruptionBudget that selects by the label that a release
// changes.
type hashSelector struct {
	object   string
	selector labels.Selector
}

// selectorConflict returns which object would treat the released pod differently: a Service would
// stop its traffic, or a PodDisruptionBudget would not count it. Hash selectors are rare, so they
// are searched once per namespace.
func (r *surgeRules) selectorConflict(pod *snapshot.Pod) string {
	const hash = appsv1.DefaultDeploymentUniqueLabelKey
	found, known := r.hashSelectors[pod.Namespace]
	if !known {
		for _, service := range r.snapshot.Services[pod.Namespace] {
			if _, ok := service.Spec.Selector[hash]; ok && len(service.Spec.Selector) <= workload.MaxTerms {
				found = append(found, hashSelector{"a Service", labels.SelectorFromSet(service.Spec.Selector)})
			}
		}
		for _, pdb := range r.snapshot.Budgets[pod.Namespace] {
			selector := workload.Selector(pdb.Spec.Selector)
			requirements, _ := selector.Requirements()
			if slices.ContainsFunc(requirements, func(one labels.Requirement) bool { return one.Key() == hash }) {
				found = append(found, hashSelector{"PodDisruptionBudget " + pdb.Name, selector})
			}
		}
		found = found[:min(len(found), workload.MaxTerms)]
		r.hashSelectors[pod.Namespace] = found
	}
	for _, by := range found {
		if by.selector.Matches(labels.Set(pod.Labels)) != by.selector.Matches(releasedLabels(pod)) {
			return by.object + " selects by " + hash
		}
	}
	return ""
}

// adopterConflict returns which controller would adopt the released pod, which has no controller;
// "" if none.
func (r *surgeRules) adopterConflict(pod *snapshot.Pod) string {
	adopters := r.adopters[pod.Namespace]
	if adopters == nil {
		adopters = &workload.Selectors[snapshot.Adopter]{}
		for _, one := range r.snapshot.Adopters[pod.Namespace] {
			adopters.Add(workload.Selector(one.Selector), one)
		}
		r.adopters[pod.Namespace] = adopters
	}
	found := adopters.Of(releasedLabels(pod))
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s would adopt it", found[0].Kind, found[0].Name)
}

// antiAffinityConflict explains how the released pod would repel its replacement; "" if it would
// not. Anti-affinity by host does not count, because Room found another host. Another zone may have
// no room.
func antiAffinityConflict(pod *snapshot.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return ""
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range terms {
		term := &terms[i]
		if term.TopologyKey == v1.LabelHostname {
			continue
		}
		// A namespace selector is not evaluated: it may match this namespace.
		own := len(term.Namespaces) == 0 || term.NamespaceSelector != nil || slices.Contains(term.Namespaces, pod.Namespace)
		if own && workload.Selector(term.LabelSelector).Matches(releasedLabels(pod)) {
			return "its own anti-affinity forbids two in one " + term.TopologyKey
		}
	}
	return ""
}

func releasedLabels(pod *snapshot.Pod) labels.Set {
	return labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: spot.ReleasedHash})
}
