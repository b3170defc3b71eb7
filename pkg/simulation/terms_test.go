package simulation_test

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// termsAllow reports whether the required affinity, anti-affinity and topology spread of p allow
// node. others contains the other pods with their nodes. termsAllow counts all pods for every
// query, as documented by Kubernetes. It supports only selectors by matchLabels, terms for the
// pod's own namespace, and a single taint and toleration.
func termsAllow(nodes []*snapshot.Node, others []placedPod, p *snapshot.Pod, node *snapshot.Node) bool {
	return affinityAllows(others, p, node) && antiAffinityAllows(others, p, node) && spreadAllows(nodes, others, p, node)
}

func selects(selector map[string]string, p *snapshot.Pod) bool {
	for key, value := range selector {
		if p.Labels[key] != value {
			return false
		}
	}
	return true
}

// sameDomain reports whether two nodes are in one topology domain.
func sameDomain(a, b *snapshot.Node, key string) bool {
	domain, in := a.Labels[key]
	other, too := b.Labels[key]
	return in && too && domain == other
}

func affinityAllows(others []placedPod, p *snapshot.Pod, node *snapshot.Node) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return true
	}
	any := false
	term := p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	for _, s := range others {
		if selects(term.LabelSelector.MatchLabels, s.pod) {
			if sameDomain(s.node, node, term.TopologyKey) {
				return true
			}
			_, in := s.node.Labels[term.TopologyKey]
			any = any || in
		}
	}
	_, in := node.Labels[term.TopologyKey]
	return in && !any && selects(term.LabelSelector.MatchLabels, p)
}

func antiAffinityAllows(others []placedPod, p *snapshot.Pod, node *snapshot.Node) bool {
	for _, s := range others {
		if a := s.pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			term := a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
			if selects(term.LabelSelector.MatchLabels, p) && sameDomain(s.node, node, term.TopologyKey) {
				return false
			}
		}
	}
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return true
	}
	term := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	return !slices.ContainsFunc(others, func(s placedPod) bool {
		return selects(term.LabelSelector.MatchLabels, s.pod) && sameDomain(s.node, node, term.TopologyKey)
	})
}

func spreadAllows(nodes []*snapshot.Node, others []placedPod, p *snapshot.Pod, node *snapshot.Node) bool {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		eligible := func(n *snapshot.Node) bool {
			for _, other := range p.Spec.TopologySpreadConstraints {
				if _, in := n.Labels[other.TopologyKey]; !in {
					return false
				}
			}
			zone, wanted := p.Spec.NodeSelector[v1.LabelTopologyZone]
			if wanted && zone != n.Labels[v1.LabelTopologyZone] && ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor {
				return false
			}
			tolerated := len(n.Spec.Taints) == 0 || len(p.Spec.Tolerations) > 0 && p.Spec.Tolerations[0].Key == n.Spec.Taints[0].Key
			return tolerated || ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyIgnore
		}
		count := map[string]int{}
		for _, n := range nodes {
			if eligible(n) {
				count[n.Labels[c.TopologyKey]] = 0
			}
		}
		selector := maps.Clone(c.LabelSelector.MatchLabels)
		for _, key := range c.MatchLabelKeys {
			selector[key] = p.Labels[key]
		}
		for _, s := range others {
			if eligible(s.node) && s.pod.DeletionTimestamp == nil && selects(selector, s.pod) {
				count[s.node.Labels[c.TopologyKey]]++
			}
		}
		least, self := 0, 0
		if len(count) > 0 && len(count) >= int(ptr.Deref(c.MinDomains, 1)) {
			least = slices.Min(slices.Collect(maps.Values(count)))
		}
		if selects(selector, p) {
			self = 1
		}
		if _, in := node.Labels[c.TopologyKey]; !in || count[node.Labels[c.TopologyKey]]+self-least > int(c.MaxSkew) {
			return false
		}
	}
	return true
}
