package workload

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Constraints are a pod's own constraints on its node: its node selector, required node affinity
// and tolerations, and the node affinity of its volumes.
type Constraints struct {
	affinity    *nodeaffinity.RequiredNodeAffinity // nil: any node
	tolerations []v1.Toleration
	volumes     []*v1.PersistentVolume
}

// NewConstraints returns the constraints of a pod whose claims are bound to these volumes.
func NewConstraints(pod *v1.Pod, volumes []*v1.PersistentVolume) Constraints {
	c := Constraints{tolerations: pod.Spec.Tolerations, volumes: volumes}
	if len(pod.Spec.NodeSelector) > 0 || len(requiredTerms(pod)) > 0 {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		c.affinity = &affinity
	}
	return c
}

// Matches reports whether the node matches the node selector and affinity.
func (c *Constraints) Matches(node *v1.Node) bool {
	match, err := true, error(nil)
	if c.affinity != nil {
		match, err = c.affinity.Match(node)
	}
	return match && err == nil
}

// Reaches reports whether the node can reach the volumes.
func (c *Constraints) Reaches(node *v1.Node) bool {
	return !slices.ContainsFunc(c.volumes, func(pv *v1.PersistentVolume) bool { return volume.CheckNodeAffinity(pv, node.Labels) != nil })
}

// UntoleratedTaint returns the key of a taint that counts and is not tolerated, or "".
func (c *Constraints) UntoleratedTaint(taints []v1.Taint, counts func(*v1.Taint) bool) string {
	if len(taints) == 0 {
		return ""
	}
	taint, _ := corev1.FindMatchingUntoleratedTaint(klog.Background(), taints, c.tolerations, counts, true)
	return taint.Key
}

// AdmitWhenHealthy reports whether the constraints admit the node if it is healthy. Temporary
// taints are ignored.
func (c *Constraints) AdmitWhenHealthy(node *v1.Node) bool {
	return c.UntoleratedTaint(node.Spec.Taints, PermanentTaint) == "" && c.Matches(node) && c.Reaches(node)
}

// Cordon is the taint of a cordoned node. An unschedulable node may not have it yet.
var Cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// ExcludesPods reports whether a taint excludes pods that do not tolerate it.
func ExcludesPods(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }

// signals contains the known signals.
var signals = providers.Signals()

// PermanentTaint reports whether a taint excludes pods, and indicates the kind of a node rather
// than its current state, as taints with the prefixes of Kubernetes and taints that are signals do.
func PermanentTaint(t *v1.Taint) bool {
	return ExcludesPods(t) && !strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") &&
		!slices.ContainsFunc(signals, func(s providers.Signal) bool { return s.Kind == providers.TaintSignal && s.Key == t.Key })
}

// reservedForSystem reports whether a taint reserves a node for the control plane or for add-ons.
func reservedForSystem(t *v1.Taint) bool {
	return PermanentTaint(t) && (strings.HasPrefix(t.Key, "node-role.kubernetes.io/") || t.Key == "CriticalAddonsOnly")
}

// VolumesOf returns the volumes that the pod's claims are bound to, as far as the caches have them.
func VolumesOf(claims corelisters.PersistentVolumeClaimLister, all corelisters.PersistentVolumeLister, pod *v1.Pod) (volumes []*v1.PersistentVolume) {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := claims.PersistentVolumeClaims(pod.Namespace).Get(source.ClaimName)
		if err != nil || claim.Spec.VolumeName == "" {
			continue
		}
		if volume, err := all.Get(claim.Spec.VolumeName); err == nil {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// NodeTerms returns the number of terms of a pod's node selector, node affinity and tolerations.
func NodeTerms(pod *v1.Pod) int {
	n := len(pod.Spec.NodeSelector) + len(pod.Spec.Tolerations)
	for _, t := range requiredTerms(pod) {
		n += 1 + len(t.MatchExpressions) + len(t.MatchFields)
	}
	return n
}

// NodesOf lists the nodes of a capacity type. A node that waits for its capacity label counts as
// spot, as always.
type NodesOf func(decision.CapacityType) iter.Seq[*v1.Node]

// Nodes are nodes by capacity type.
type Nodes [2][]*v1.Node

// Add adds a node.
func (n *Nodes) Add(node *v1.Node, capacity decision.CapacityType) {
	n[capacity] = append(n[capacity], node)
}

// Of is a NodesOf.
func (n *Nodes) Of(capacity decision.CapacityType) iter.Seq[*v1.Node] {
	return slices.Values(n[capacity])
}

// AdmitsOnly reports whether the nodes show that the constraints of the pod admit only nodes of one
// capacity type: they admit such a node, and none of the nodes of the other type, which exist.
// Without nodes of the other type nothing is known, because an autoscaler may start from none. For
// the same reason, nodes that are reserved for the system show nothing. Room, health and cordons do
// not count. It usually returns after the first node of the other type.
func AdmitsOnly(pod *v1.Pod, volumes []*v1.PersistentVolume, only decision.CapacityType, nodes NodesOf) bool {
	if NodeTerms(pod) > MaxTerms { // the evaluation would delay all other pods
		return false
	}
	c, known := NewConstraints(pod, volumes), false
	for node := range nodes(decision.Spot - only) {
		if c.AdmitWhenHealthy(node) {
			return false
		}
		known = known || c.UntoleratedTaint(node.Spec.Taints, reservedForSystem) == ""
	}
	if known {
		for node := range nodes(only) {
			if c.AdmitWhenHealthy(node) {
				return true
			}
		}
	}
	return false
}

// NewJudge returns a function like AdmitsOnly for many pods. It judges pods with equal constraints
// once, unless one of the first nodes decides. It is false for a pod to which the controller
// assigned spot, because that requirement is not the pod's own.
func NewJudge(nodes NodesOf) func(*v1.Pod, []*v1.PersistentVolume, decision.CapacityType) bool {
	known := map[string]bool{}
	return func(pod *v1.Pod, volumes []*v1.PersistentVolume, only decision.CapacityType) bool {
		if AssignedCapacityOf(pod) == decision.AssignedSpot {
			return false
		}
		c, tried := NewConstraints(pod, volumes), 0
		for node := range nodes(decision.Spot - only) {
			if tried++; tried > 16 {
				break
			}
			if c.AdmitWhenHealthy(node) {
				return false
			}
		}
		text, _ := json.Marshal([]any{only, pod.Spec.NodeSelector, requiredTerms(pod), pod.Spec.Tolerations, volumes}) // it has no error
		if _, judged := known[string(text)]; !judged {
			known[string(text)] = AdmitsOnly(pod, volumes, only, nodes)
		}
		return known[string(text)]
	}
}

// Judge sets OnlySpot or OnlyOnDemand if the budget or overflow Never keeps the pod off a capacity
// type, and admitsOnly reports that the pod admits only the other. It reports whether it did. The
// plan is then outdated. A Grant does not matter: an exemption is the better reason.
func Judge(pod *decision.Pod, plan *decision.Plan, admitsOnly func(decision.CapacityType) bool) bool {
	if pod.OnlySpot || pod.OnlyOnDemand || pod.Assigned == decision.AssignedSpot {
		return false
	}
	pod.OnlySpot = !plan.WithinBudget(0) && admitsOnly(decision.Spot)
	pod.OnlyOnDemand = !pod.OnlySpot && plan.ExcludedFromOnDemand() && admitsOnly(decision.OnDemand)
	return pod.OnlySpot || pod.OnlyOnDemand
}
