package audit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// isModeled reports whether this package models all of the pod's scheduling constraints. It does
// not model volumes, host ports, claims, gangs and constraints on other pods.
func isModeled(p *corev1.Pod) bool {
	if len(p.Spec.ResourceClaims) > 0 || p.Spec.SchedulingGroup != nil || p.Labels["scheduling.x-k8s.io/pod-group"] != "" {
		return false
	}
	if a := p.Spec.Affinity; a != nil && ((a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) ||
		len(requiredAntiAffinity(p)) > 0) {
		return false
	}
	hardSpread := func(s corev1.TopologySpreadConstraint) bool { return s.WhenUnsatisfiable == corev1.DoNotSchedule }
	onNode := func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
	}
	if slices.ContainsFunc(p.Spec.TopologySpreadConstraints, hardSpread) || slices.ContainsFunc(p.Spec.Volumes, onNode) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(container corev1.Container) bool {
		return slices.ContainsFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.HostPort != 0 })
	})
}

func requiredAntiAffinity(p *corev1.Pod) []corev1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// selectedByAntiAffinity reports whether the required anti-affinity of a pod selects this pod. The
// auditor does not compute the remaining nodes and does not check such pods.
func (c *core) selectedByAntiAffinity(p *corev1.Pod) bool {
	for _, q := range c.wakeups.repel {
		for _, term := range requiredAntiAffinity(q.object) {
			if selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector); err != nil || selector.Matches(labels.Set(p.Labels)) {
				return true
			}
		}
	}
	return false
}

// nominated returns the resources on each node that are reserved for other pending pods of at
// least p's priority.
func (c *core) nominated(p *pod) map[string]resources {
	out := map[string]resources{}
	for _, q := range c.wakeups.pending {
		name := q.object.Status.NominatedNodeName
		if name == "" || q == p || schedulinghelpers.PodPriority(q.object) < schedulinghelpers.PodPriority(p.object) {
			continue
		}
		if out[name] == nil {
			out[name] = resources{}
		}
		out[name].add(q.requests, 1)
	}
	return out
}

// fits reports whether an existing node has room for the pod in addition to the reserved
// resources, and satisfies the pod's constraints.
func (n *node) fits(p *pod, reserved resources) bool {
	for name, need := range p.requests {
		if need > 0 && n.used[name]+reserved[name]+need > n.offers[name] {
			return false
		}
	}
	taints := n.object.Spec.Taints
	if n.object.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, kept := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), taints, p.object.Spec.Tolerations, hard, false); kept {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(p.object).Match(n.object)
	return err == nil && matches
}

// excludes reports whether nodes of a capacity type exist, but no such node matches the pod's node
// selector, node affinity and tolerations now, or the pod selects a host or a node pool. It ignores
// volumes and start-up taints. It returns false for a pod that the controller assigned to spot.
func (c *core) excludes(p *corev1.Pod, spot bool) bool {
	if strings.HasPrefix(p.Annotations[prefix+"assigned"], "spot") {
		return false
	}
	hard := func(t *corev1.Taint) bool {
		starts := t.Key == "karpenter.sh/unregistered" || strings.HasSuffix(t.Key, "not-ready") || strings.HasSuffix(t.Key, "uninitialized")
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/") && !starts
	}
	exists := p.Spec.NodeSelector[corev1.LabelHostname] != "" || p.Spec.NodeSelector["karpenter.sh/nodepool"] != ""
	for _, n := range c.nodes {
		if n.object == nil || n.facts.last().spot != spot {
			continue
		}
		exists = true
		matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n.object)
		if _, kept := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), n.object.Spec.Taints, p.Spec.Tolerations, hard,
			false); !kept && err == nil && matches {
			return false
		}
	}
	return exists
}

// resources are amounts by name: CPU in thousandths, others in whole units. A pod uses one of
// "pods".
type resources map[corev1.ResourceName]int64

// add adds sign times other.
func (r resources) add(other resources, sign int64) {
	for name, amount := range other {
		r[name] += sign * amount
	}
}

func requestsOf(p *corev1.Pod) resources {
	out := inUnits(resource.PodRequests(p, resource.PodResourcesOptions{}))
	out[corev1.ResourcePods] = 1
	return out
}

func inUnits(list corev1.ResourceList) resources {
	out := resources{}
	for name, quantity := range list {
		out[name] = quantity.Value()
		if name == corev1.ResourceCPU {
			out[name] = quantity.MilliValue()
		}
	}
	return out
}
