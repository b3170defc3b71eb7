package simulation

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Excessive reports whether the pod has so many terms that a search for its room would take too
// long for all other pods. Room does not search for such a pod.
func Excessive(p *snapshot.Pod) bool {
	n := workload.NodeTerms(p.Pod)
	selector := func(s *metav1.LabelSelector) {
		if s != nil {
			n += len(s.MatchLabels) + len(s.MatchExpressions)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		n += 1 + len(c.MatchLabelKeys)
		selector(c.LabelSelector)
	}
	if a := p.Spec.Affinity; a != nil {
		for _, terms := range [][]v1.PodAffinityTerm{fwk.GetPodAffinityTerms(a), fwk.GetPodAntiAffinityTerms(a)} {
			for i := range terms {
				n += 1 + len(terms[i].Namespaces)
				selector(terms[i].LabelSelector)
				selector(terms[i].NamespaceSelector)
			}
		}
	}
	return n > workload.MaxTerms
}
