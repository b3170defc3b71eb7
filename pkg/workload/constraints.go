package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/informers"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Constraints are a pod's own constraints on its node: its node selector, required node affinity
// and tolerations, the node affinity of its volumes, and the names of its extended resources.
type Constraints struct {
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
	volumes     []*v1.PersistentVolume
	resources   []v1.ResourceName
}

// NewConstraints returns the constraints of a pod with these volumes (VolumesOf).
func NewConstraints(pod *v1.Pod, volumes []*v1.PersistentVolume) Constraints {
	return Constraints{nodeaffinity.GetRequiredNodeAffinity(pod), pod.Spec.Tolerations, volumes, ExtendedResources(RequestsOf(pod))}
}

// Matches reports whether the node matches the node selector and affinity.
func (c *Constraints) Matches(node *v1.Node) bool {
	match, _ := c.affinity.Match(node) // false if a term is invalid and no other matches
	return match
}

// Reaches reports whether the node can reach the volumes.
func (c *Constraints) Reaches(node *v1.Node) bool {
	return !slices.ContainsFunc(c.volumes, func(pv *v1.PersistentVolume) bool { return volume.CheckNodeAffinity(pv, node.Labels) != nil })
}

// UntoleratedTaint returns the key of a taint of the node that counts and is not tolerated, or "".
// A cordoned node may not have its taint yet.
func (c *Constraints) UntoleratedTaint(node *v1.Node, counts func(*v1.Taint) bool) string {
	key := c.UntoleratedOf(node.Spec.Taints, counts)
	if key == "" && node.Spec.Unschedulable {
		return c.UntoleratedOf([]v1.Taint{cordon}, counts)
	}
	return key
}

// UntoleratedOf returns the key of one of the taints that counts and is not tolerated, or "".
func (c *Constraints) UntoleratedOf(taints []v1.Taint, counts func(*v1.Taint) bool) string {
	taint, _ := corev1.FindMatchingUntoleratedTaint(klog.Background(), taints, c.tolerations, counts, true)
	return taint.Key
}

var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// lacks returns an extended resource that the node does not have, or "".
func (c *Constraints) lacks(node *v1.Node) v1.ResourceName {
	i := slices.IndexFunc(c.resources, func(name v1.ResourceName) bool { return !slices.Contains(Offered(node), name) })
	if i < 0 {
		return ""
	}
	return c.resources[i]
}

// Admit reports whether the constraints admit the node as far as taints count. With PermanentTaint,
// that is if the node is healthy.
func (c *Constraints) Admit(node *v1.Node, counts func(*v1.Taint) bool) bool {
	return c.UntoleratedTaint(node, counts) == "" && c.Matches(node) && c.Reaches(node) && c.lacks(node) == ""
}

// AdmitPool reports whether the constraints admit nodes of the pool by its taints, and by the
// extended resources that they may have.
func (c *Constraints) AdmitPool(pool *providers.NodePool) bool {
	return c.UntoleratedOf(pool.Taints, ExcludesPods) == "" &&
		!slices.ContainsFunc(c.resources, func(name v1.ResourceName) bool { return !pool.MayOffer(name) })
}

// ExcludesPods reports whether a taint excludes pods that do not tolerate it.
func ExcludesPods(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }

var signals = providers.Signals()

// PermanentTaint reports whether a taint excludes pods, and indicates the kind of a node rather
// than its current state, as start-up taints, taints with the prefixes of Kubernetes and taints
// that are signals do. It returns true for a start-up taint that no table contains.
func PermanentTaint(t *v1.Taint) bool {
	return ExcludesPods(t) && !providers.IsStartupTaint(t.Key) &&
		!strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") &&
		!slices.ContainsFunc(signals, func(s providers.Signal) bool { return s.Kind == providers.TaintSignal && s.Key == t.Key })
}

// VolumesOf returns a function that returns the volumes of a pod's claims, as far as the caches of
// factory have them. A claim that is not bound yet counts as a volume in the topologies that its
// StorageClass allows. factory must not have been started.
func VolumesOf(factory informers.SharedInformerFactory) func(*v1.Pod) []*v1.PersistentVolume {
	claims, all := factory.Core().V1().PersistentVolumeClaims().Lister(), factory.Core().V1().PersistentVolumes().Lister()
	classes, ofClass := factory.Storage().V1().StorageClasses().Lister(), lru.New(64) // pods with equal volumes are alike
	return func(pod *v1.Pod) (volumes []*v1.PersistentVolume) {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			name := ephemeral.VolumeClaimName(pod, v)
			if v.PersistentVolumeClaim != nil {
				name = v.PersistentVolumeClaim.ClaimName
			} else if v.Ephemeral == nil {
				continue
			}
			claim, err := claims.PersistentVolumeClaims(pod.Namespace).Get(name)
			if err != nil {
				continue
			}
			if volume, err := all.Get(claim.Spec.VolumeName); err == nil {
				volumes = append(volumes, volume)
			}
			class, err := classes.Get(ptr.Deref(claim.Spec.StorageClassName, ""))
			if err != nil || claim.Spec.VolumeName != "" || len(class.AllowedTopologies) == 0 {
				continue
			}
			volume, known := ofClass.Get(class)
			if !known {
				volume = newVolume(class)
				ofClass.Add(class, volume)
			}
			volumes = append(volumes, volume.(*v1.PersistentVolume))
		}
		return volumes
	}
}

// newVolume returns an example of the volumes that a provisioner may create for the class.
func newVolume(class *storagev1.StorageClass) *v1.PersistentVolume {
	required := &v1.NodeSelector{}
	for _, topology := range class.AllowedTopologies {
		var term v1.NodeSelectorTerm
		for _, label := range topology.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions,
				v1.NodeSelectorRequirement{Key: label.Key, Operator: v1.NodeSelectorOpIn, Values: label.Values})
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: required}}}
}

// NodeTerms returns the number of terms of a pod's node selector, node affinity and tolerations.
func NodeTerms(pod *v1.Pod) int {
	n := len(pod.Spec.NodeSelector) + len(pod.Spec.Tolerations)
	for _, t := range requiredTerms(pod) {
		n += 1 + len(t.MatchExpressions) + len(t.MatchFields)
	}
	return n
}

// NodeEvidence judges by the nodes that exist, and by the pools from which an autoscaler adds
// nodes, whether the constraints of a pod admit only one capacity type. It is safe for concurrent
// use.
type NodeEvidence struct {
	// Pools may be nil. It must be set before the first judgement.
	Pools  *Pools
	policy *decision.Policy

	mu      sync.Mutex
	nodes   [2]map[string]knownNode // by capacity type and name; a node of unknown type is in both
	answers *lru.Cache              // bool by the hash of constraints, until a node or pool changes
	version *[]providers.NodePool   // of Pools, when answers were computed
}

type knownNode struct {
	*v1.Node
	settled bool // it is ready, is older than the grace, and neither starts nor ends
}

// NewNodeEvidence returns evidence without nodes.
func NewNodeEvidence(policy *decision.Policy) *NodeEvidence {
	return &NodeEvidence{policy: policy, nodes: [2]map[string]knownNode{{}, {}}, answers: lru.New(1024)}
}

// Set adds or updates a node at now. It must be called again at until, if that is not zero.
func (e *NodeEvidence) Set(node *v1.Node, capacity decision.Capacity, now time.Time) (until time.Time) {
	end := node.CreationTimestamp.Add(e.policy.LabelGrace)
	if now.Before(end) {
		until = end
	}
	next := knownNode{node, !now.Before(end) && steady(node)}
	e.mu.Lock()
	defer e.mu.Unlock()
	for t, nodes := range e.nodes {
		before, known := nodes[node.Name]
		belongs := decision.CapacityType(t) == capacity.Type || capacity.Source == decision.Settling
		if known != belongs || known && before != next && (before.settled != next.settled ||
			!maps.Equal(before.Labels, node.Labels) || !equality.Semantic.DeepEqual(before.Spec.Taints, node.Spec.Taints) ||
			!slices.Equal(Offered(before.Node), Offered(node))) {
			e.answers.Clear()
		}
		if delete(nodes, node.Name); belongs {
			nodes[node.Name] = next
		}
	}
	return until
}

// Delete removes a node.
func (e *NodeEvidence) Delete(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers.Clear()
	delete(e.nodes[decision.OnDemand], name)
	delete(e.nodes[decision.Spot], name)
}

// capacityOf returns the capacity type of a node; false if the node is unknown.
func (e *NodeEvidence) capacityOf(name string) (decision.CapacityType, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, spot := e.nodes[decision.Spot][name]; spot {
		return decision.Spot, true
	}
	_, onDemand := e.nodes[decision.OnDemand][name]
	return decision.OnDemand, onDemand
}

// AdmitsOnly reports whether the nodes prove that the constraints of the pod admit only one
// capacity type: they admit a node of this type, and the labels or taints of every node of the
// other type exclude the pod, or the node lacks an extended resource. Nodes of the other type must
// exist and not be reserved for the system, because an autoscaler may start from none, unless the
// pod selects a group of nodes. If a pool can add a node of the other type for the pod now, the
// nodes prove nothing.
//
// Room, health, cordons, signals and start-up taints never exclude a pod. A label with another
// value does. A missing label, a taint or a missing resource excludes it only on a settled node, or
// if a settled node has the taint, or is of the same instance type and lacks the resource. So no
// taint of a node that starts makes the answer true, and the node makes it false only if it may
// admit the pod. AdmitsOnly returns false for a pod that was assigned to spot: that requirement is
// not its own.
func (e *NodeEvidence) AdmitsOnly(pod *v1.Pod, volumes []*v1.PersistentVolume, only decision.CapacityType) bool {
	if NodeTerms(pod) > MaxTerms || AssignedCapacityOf(pod) == decision.AssignedSpot { // so many terms would delay all other pods
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if version := e.Pools.version(); version != e.version {
		e.answers.Clear()
		e.version = version
	}
	c := NewConstraints(pod, volumes)
	for _, node := range e.nodes[decision.Spot-only] {
		if c.Admit(node.Node, PermanentTaint) {
			return false
		}
		break // most pods fit any node; other pods with equal constraints share an answer
	}
	var requests v1.ResourceList
	if len(e.Pools.KnownPools()) > 0 {
		requests = RequestsOf(pod) // their limits matter
	}
	// It has no error. A tenant chooses the length of the text.
	text, _ := json.Marshal([]any{only, pod.Spec.NodeSelector, requiredTerms(pod), pod.Spec.Tolerations, volumes, c.resources, requests})
	hash := sha256.Sum256(text)
	if answer, known := e.answers.Get(hash); known {
		return answer.(bool)
	}
	answer := e.judge(pod, &c, only) && !e.Pools.Add(e.policy, pod, volumes, decision.Spot-only, true)
	e.answers.Add(hash, answer)
	return answer
}

func (e *NodeEvidence) judge(pod *v1.Pod, c *Constraints, only decision.CapacityType) bool {
	requires := func(match func(*v1.NodeSelectorRequirement) bool) bool {
		return requires(pod, match) || slices.ContainsFunc(c.volumes, func(pv *v1.PersistentVolume) bool {
			a := pv.Spec.NodeAffinity
			return a != nil && a.Required != nil && requiresAll(a.Required.NodeSelectorTerms, match)
		})
	}
	proven := requires(func(r *v1.NodeSelectorRequirement) bool {
		return r.Operator == v1.NodeSelectorOpIn && slices.Contains(providers.NodeGroups, r.Key)
	})
	// The keys of taints that exclude the pod, and missing resources by instance type; "" means a
	// label that may arrive.
	permanent, doubtful := map[string]bool{}, map[string]bool{}
	for _, node := range e.nodes[decision.Spot-only] {
		why, matches := c.UntoleratedTaint(node.Node, PermanentTaint), c.Matches(node.Node) && c.Reaches(node.Node)
		if lacks := c.lacks(node.Node); why == "" && lacks != "" {
			why = string(lacks) + " " + cmp.Or(node.Labels[v1.LabelInstanceTypeStable], "of "+node.Name)
		}
		switch {
		case matches && why == "":
			return false
		case matches && node.settled:
			permanent[why] = true
		case matches:
			doubtful[why] = true
		case !node.settled && !requires(func(r *v1.NodeSelectorRequirement) bool { return contradicts(node.Labels, r) }):
			doubtful[""] = true
		}
		proven = proven || (node.settled || !matches) && c.UntoleratedTaint(node.Node, reservedForSystem) == ""
	}
	maps.DeleteFunc(doubtful, func(why string, _ bool) bool { return permanent[why] })
	if !proven || len(doubtful) > 0 {
		return false
	}
	for _, node := range e.nodes[only] {
		if c.Admit(node.Node, PermanentTaint) {
			return true
		}
	}
	return false
}

// contradicts reports whether a label that a node has excludes pods with the requirement.
func contradicts(labels map[string]string, r *v1.NodeSelectorRequirement) bool {
	value, has := labels[r.Key]
	listed := slices.Contains(r.Values, value)
	return has && (r.Operator == v1.NodeSelectorOpIn && !listed || r.Operator == v1.NodeSelectorOpNotIn && listed ||
		r.Operator == v1.NodeSelectorOpDoesNotExist)
}

// steady reports whether the node is ready, has no temporary taint, and neither starts nor ends.
func steady(n *v1.Node) bool {
	return node.Ready(n) && n.DeletionTimestamp == nil && !n.Spec.Unschedulable && !providers.Starting(n) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return ExcludesPods(&t) && !PermanentTaint(&t) })
}

// MayAdmitOther reports whether a change of a node may change whether a pod admits only one
// capacity type.
func MayAdmitOther(pod *v1.Pod, volumes []*v1.PersistentVolume, before, after *v1.Node) bool {
	if NodeTerms(pod) > MaxTerms {
		return false
	}
	c := NewConstraints(pod, volumes)
	admits := c.Admit(after, PermanentTaint)
	return admits != c.Admit(before, PermanentTaint) || !admits && steady(before) != steady(after)
}

// reservedForSystem reports whether a taint reserves a node for the control plane or for add-ons.
func reservedForSystem(t *v1.Taint) bool {
	return PermanentTaint(t) && (strings.HasPrefix(t.Key, "node-role.kubernetes.io/") || t.Key == "CriticalAddonsOnly")
}

// Judge sets OnlySpot or OnlyOnDemand of the subject if the budget or overflow Never keeps the pod
// off a capacity type, and it AdmitsOnly the other. Judge reports whether it did: the plan is then
// outdated. A Grant does not matter, because an exemption is the better reason.
func (e *NodeEvidence) Judge(pod *v1.Pod, volumesOf func(*v1.Pod) []*v1.PersistentVolume, subject *decision.Pod, plan *decision.Plan) bool {
	if subject.OnlySpot || subject.OnlyOnDemand || plan.WithinBudget(0) && !plan.ExcludedFromOnDemand() {
		return false
	}
	volumes := volumesOf(pod)
	subject.OnlySpot = !plan.WithinBudget(0) && e.AdmitsOnly(pod, volumes, decision.Spot)
	subject.OnlyOnDemand = !subject.OnlySpot && plan.ExcludedFromOnDemand() && e.AdmitsOnly(pod, volumes, decision.OnDemand)
	return subject.OnlySpot || subject.OnlyOnDemand
}
