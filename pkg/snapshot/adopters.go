package snapshot

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Adopter is a controller that adopts pods without a controller by their labels, and whose selector
// does not require pod-template-hash.
type Adopter struct {
	// Kind and Name identify the controller in its namespace.
	Kind, Name string
	Selector   *metav1.LabelSelector
}

// readAdopters returns the adopters of each namespace, ordered by kind and name. It omits
// StatefulSets, which adopt only pods with one of their own names.
func (r *Reader) readAdopters(replicaSets []*appsv1.ReplicaSet) map[string][]Adopter {
	byNamespace := map[string][]Adopter{}
	add := func(kind string, object metav1.Object, selector *metav1.LabelSelector) {
		if selector == nil {
			return
		}
		if _, ok := selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
			byNamespace[object.GetNamespace()] = append(byNamespace[object.GetNamespace()], Adopter{kind, object.GetName(), selector})
		}
	}
	for _, set := range All(r.factory.Apps().V1().DaemonSets().Lister()) {
		add("DaemonSet", set, set.Spec.Selector)
	}
	for _, rs := range replicaSets {
		add("ReplicaSet", rs, rs.Spec.Selector)
	}
	for _, rc := range All(r.factory.Core().V1().ReplicationControllers().Lister()) {
		if len(rc.Spec.Selector) > 0 { // an empty selector selects nothing
			add("ReplicationController", rc, &metav1.LabelSelector{MatchLabels: rc.Spec.Selector})
		}
	}
	for _, adopters := range byNamespace {
		slices.SortFunc(adopters, func(a, b Adopter) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	}
	return byNamespace
}
