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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// SurgeAnnotation on a Deployment, or on a ReplicaSet without one, says with "false" that two of its pods are never to run where one was
// asked for.
const SurgeAnnotation = "spot-aware-scheduler.io/surge"

// Surges returns a function that reports whether a live pod of s can be moved by surge, as far as s shows. The API server may refuse it all the
// same.
func Surges(s *cluster.Snapshot) func(*cluster.Pod) bool {
	p := newPlanner(s, nil, nil, Settings{}, nil)
	return func(pod *cluster.Pod) bool { return p.noSurge(pod) == "" }
}

// NeverSurges returns a function that says why a pod of s cannot be moved by surge whatever happens around it; "" if it can, though perhaps not
// now.
func NeverSurges(s *cluster.Snapshot) func(*cluster.Pod) string {
	return newPlanner(s, nil, nil, Settings{}, nil).neverSurges
}

// wayOf returns the gentlest way that works for a live pod, with why that is not Surge.
func (p *planner) wayOf(pod *cluster.Pod) (Way, string) {
	if no := p.noSurge(pod); no != "" {
		return Evict, no
	}
	return Surge, ""
}

// noSurge says why a pod cannot be released from its ReplicaSet while a replacement starts; "" if it can.
func (p *planner) noSurge(pod *cluster.Pod) string {
	if no := p.neverSurges(pod); no != "" {
		return no
	}
	_, serves := ready(pod)
	switch {
	case pod.Workload.RollingOut:
		return "a rollout is in progress"
	case !serves:
		return "it is not ready"
	case p.progress[pod.UID] == Unreleasable:
		return "the API server refuses to change its label"
	}
	return ""
}

// neverSurges is noSurge as far as it does not depend on the moment.
func (p *planner) neverSurges(pod *cluster.Pod) string {
	if pod.Revision == nil || pod.Revision.ReplicaSet == nil {
		return "not of a ReplicaSet"
	}
	rs, workload := pod.Revision.ReplicaSet, pod.Workload
	hash, ok := rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey]
	switch {
	case !ok || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash:
		return "its ReplicaSet does not select by " + appsv1.DefaultDeploymentUniqueLabelKey
	case workload.Deployment == nil && metav1.GetControllerOfNoCopy(rs) != nil:
		return "its ReplicaSet is not of a Deployment"
	case annotation(workload, rs) == "false":
		return SurgeAnnotation + " says so"
	case workload.Deployment != nil && !surges(workload.Deployment):
		return "its Deployment's strategy allows no surge"
	}
	return cmp.Or(heldByOne(pod), p.toldApart(pod), p.adoptable(pod), repelsItself(pod))
}

func annotation(w *cluster.Workload, rs *appsv1.ReplicaSet) string {
	if w.Deployment != nil {
		return w.Deployment.Annotations[SurgeAnnotation]
	}
	return rs.Annotations[SurgeAnnotation]
}

// surges reports whether the Deployment's strategy lets a pod be started before another is gone.
func surges(d *appsv1.Deployment) bool {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	if d.Spec.Strategy.RollingUpdate == nil || d.Spec.Strategy.RollingUpdate.MaxSurge == nil {
		return true // the API server's default is 25%, of at least one
	}
	// Of no replicas a percentage is nothing, but then there is no pod to move either.
	n, err := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, max(kube.Replicas(d.Spec.Replicas), 1), true)
	return err == nil && n > 0
}

// heldByOne says what the pod has that two cannot have at once. Any claim counts: how it may be mounted says nothing of what the
// application makes of it.
func heldByOne(pod *cluster.Pod) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return "it has a persistent volume"
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].Ports, func(port v1.ContainerPort) bool { return port.HostPort != 0 }) {
				return "it has a port of its node"
			}
		}
	}
	return ""
}

// toldApart says who would treat the released pod otherwise than before: a Service would take its traffic away, a budget not count it.
func (p *planner) toldApart(pod *cluster.Pod) string {
	for _, by := range p.selectingByHash(pod.Namespace) {
		if by.selector.Matches(labels.Set(pod.Labels)) != by.selector.Matches(releasedLabels(pod)) {
			return by.what + " selects by " + appsv1.DefaultDeploymentUniqueLabelKey
		}
	}
	return ""
}

// byHash is a Service or a PodDisruptionBudget that selects by the label which a release changes.
type byHash struct {
	what     string
	selector labels.Selector
}

// selectingByHash returns those of a namespace. There hardly are any, so they are looked for once.
func (p *planner) selectingByHash(namespace string) []byHash {
	found, known := p.byHash[namespace]
	if known {
		return found
	}
	for _, service := range p.snapshot.Services[namespace] {
		if _, ok := service[appsv1.DefaultDeploymentUniqueLabelKey]; ok {
			found = append(found, byHash{"a Service", labels.SelectorFromSet(service)})
		}
	}
	for _, budget := range p.budgets.in(namespace) {
		requirements, _ := budget.selector.Requirements()
		if slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() == appsv1.DefaultDeploymentUniqueLabelKey }) {
			found = append(found, byHash{"PodDisruptionBudget " + budget.name, budget.selector})
		}
	}
	p.byHash[namespace] = found
	return found
}

// adopter is a controller that could adopt a released pod.
type adopter struct {
	cluster.Adopter
	selector labels.Selector
}

// adoptable says which controller would adopt the released pod, which has none.
func (p *planner) adoptable(pod *cluster.Pod) string {
	adopters, known := p.adopters[pod.Namespace]
	if !known {
		for _, one := range p.snapshot.Adopters[pod.Namespace] {
			if selector, err := metav1.LabelSelectorAsSelector(one.Selector); err == nil { // else it selects nothing
				adopters = append(adopters, adopter{one, selector})
			}
		}
		p.adopters[pod.Namespace] = adopters
	}
	released := releasedLabels(pod)
	for _, by := range adopters {
		if by.selector.Matches(released) {
			return fmt.Sprintf("%s %s would adopt it", by.Kind, by.Name)
		}
	}
	return ""
}

// repelsItself says whether the released pod would keep its replacement away. On another host than its own there is room for one
// (Room has seen it), in another zone perhaps not.
func repelsItself(pod *cluster.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return ""
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range terms {
		term := &terms[i]
		if term.TopologyKey == v1.LabelHostname {
			continue
		}
		// Which namespaces a selector means is not looked up: it may mean this one.
		own := len(term.Namespaces) == 0 || term.NamespaceSelector != nil || slices.Contains(term.Namespaces, pod.Namespace)
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if own && err == nil && selector.Matches(releasedLabels(pod)) {
			return "its own anti-affinity forbids two in one " + term.TopologyKey
		}
	}
	return ""
}

// releasedLabels are the pod's labels once it is released.
func releasedLabels(pod *cluster.Pod) labels.Set {
	return labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: kube.ReleasedHash})
}
