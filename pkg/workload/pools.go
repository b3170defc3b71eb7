package workload

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Pools are the pools from which an autoscaler adds nodes. nil and the zero value contain none. It
// is safe for concurrent use.
type Pools struct {
	known atomic.Pointer[[]providers.NodePool]
}

// SetPools replaces the pools. The caller must not change them later.
func (p *Pools) SetPools(pools []providers.NodePool) {
	if !equality.Semantic.DeepEqual(p.KnownPools(), pools) {
		p.known.Store(&pools)
	}
}

// KnownPools returns the pools. They must not be changed.
func (p *Pools) KnownPools() []providers.NodePool {
	if known := p.version(); known != nil {
		return *known
	}
	return nil
}

// version returns a pointer that changes with the pools.
func (p *Pools) version() *[]providers.NodePool {
	if p == nil {
		return nil
	}
	return p.known.Load()
}

// Add reports whether a pool can add a node of the capacity type for the pod; see PoolNode. now
// reports whether the state of the pool matters: its limits, and whether it is ready.
func (p *Pools) Add(policy *decision.Policy, pod *v1.Pod, volumes []*v1.PersistentVolume, capacity decision.CapacityType, now bool) bool {
	return slices.ContainsFunc(p.KnownPools(), func(pool providers.NodePool) bool {
		return (!now || pool.Adds(RequestsOf(pod))) && PoolNode(&pool, policy, pod, volumes, capacity) != nil
	})
}

// PoolNode returns an example of the nodes of a capacity type that an autoscaler may add from a
// pool, and that the constraints of the pod and of its volumes admit. It returns nil if there is
// none, or if the constraints have more than MaxTerms terms or values. The size of nodes and the
// state of the pool do not matter. A nil policy has no capacity labels.
//
// A node has the labels that the pool requires. It also has each label that every provider sets,
// such as its zone, if the pod names a value. A pool that requires no capacity type may add nodes
// of both.
func PoolNode(pool *providers.NodePool, policy *decision.Policy, pod *v1.Pod, volumes []*v1.PersistentVolume,
	capacity decision.CapacityType) *v1.Node {
	c := NewConstraints(pod, volumes)
	if NodeTerms(pod) > MaxTerms || !c.AdmitPool(pool) {
		return nil
	}
	for _, wanted := range alternatives(pod, volumes) {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: poolLabels(pool.Requirements, wanted, policy, capacity)}}
		if node.Labels != nil && c.Matches(node) && c.Reaches(node) {
			return node
		}
	}
	return nil
}

// alternatives returns lists of requirements, of at most MaxTerms values together. A node that
// satisfies one of the lists satisfies the node selector and affinity of the pod, and that of its
// volumes. A term that names a node is no alternative.
func alternatives(pod *v1.Pod, volumes []*v1.PersistentVolume) [][]v1.NodeSelectorRequirement {
	var selector []v1.NodeSelectorRequirement
	for key, value := range pod.Spec.NodeSelector {
		selector = append(selector, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}})
	}
	lists, terms := [][]v1.NodeSelectorRequirement{selector}, [][]v1.NodeSelectorTerm{requiredTerms(pod)}
	for _, pv := range volumes {
		if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
			terms = append(terms, a.Required.NodeSelectorTerms)
		}
	}
	for _, options := range terms {
		var longer [][]v1.NodeSelectorRequirement
		values := 0
		for _, list := range lists {
			for i := range options {
				with := slices.Concat(list, options[i].MatchExpressions)
				for _, r := range with {
					values += 1 + len(r.Values)
				}
				if len(options[i].MatchFields) == 0 && values <= MaxTerms {
					longer = append(longer, with)
				}
			}
		}
		if len(options) > 0 {
			lists = longer
		}
	}
	return lists
}

// poolLabels returns the labels of a node that satisfies the requirements of a pool, and the wanted
// ones as far as it finds values; nil if it finds none for the pool's own.
func poolLabels(pool, wanted []v1.NodeSelectorRequirement, policy *decision.Policy, capacity decision.CapacityType) map[string]string {
	all, ofPool, exists := map[string][]v1.NodeSelectorRequirement{}, map[string]bool{}, map[string]bool{}
	for i, r := range slices.Concat(pool, wanted) {
		label := sameLabel(r.Key)
		all[label] = append(all[label], r)
		if i < len(pool) {
			ofPool[label] = true
			exists[label] = exists[label] || r.Operator != v1.NodeSelectorOpNotIn && r.Operator != v1.NodeSelectorOpDoesNotExist
		}
	}
	labels := map[string]string{}
	for label, requirements := range all {
		if !ofPool[label] && !setByProviders(label) {
			continue
		}
		values := candidates(label, requirements, policy, capacity)
		at := slices.IndexFunc(values, func(value string) bool { return satisfies(requirements, value) })
		switch {
		case at >= 0:
			labels[label] = values[at]
			for _, r := range requirements {
				labels[r.Key] = values[at]
			}
		case exists[label] && len(values) > 0 || ofPool[label] && isCapacityLabel(policy, label):
			return nil
		}
	}
	return labels
}

// candidates returns values of a label that may satisfy requirements. A value of a capacity label
// means the capacity type. A zone is never invented, because it would have no pods.
func candidates(
	label string, requirements []v1.NodeSelectorRequirement, policy *decision.Policy, capacity decision.CapacityType,
) (values []string) {
	for _, r := range requirements {
		switch r.Operator {
		case v1.NodeSelectorOpIn:
			values = append(values, r.Values...)
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			for _, value := range r.Values {
				number, _ := strconv.Atoi(value) // an invalid number satisfies nothing
				values = append(values, strconv.Itoa(number+1), strconv.Itoa(number-1))
			}
		}
	}
	if isCapacityLabel(policy, label) {
		known, _ := policy.ValuesOf(label, capacity)
		return slices.DeleteFunc(append(known, values...), func(value string) bool {
			means, known := policy.LabelMeaning(label, value)
			return !known || means != capacity
		})
	}
	if label != v1.LabelTopologyZone {
		values = append(values, "any")
	}
	return values
}

func isCapacityLabel(policy *decision.Policy, label string) bool {
	return policy != nil && (label == spot.CapacityLabel || slices.Contains(policy.CapacityKeys(), label))
}

// satisfies reports whether a label with the value satisfies requirements of equal labels.
func satisfies(requirements []v1.NodeSelectorRequirement, value string) bool {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, r := range requirements {
		node.Labels[r.Key] = value
	}
	term := v1.NodeSelectorTerm{MatchExpressions: requirements}
	match, err := nodeaffinity.NewLazyErrorNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}).Match(node)
	return match && err == nil
}

// otherNames are other names of labels that every provider sets. Karpenter treats them alike.
var otherNames = map[string]string{
	v1.LabelFailureDomainBetaZone: v1.LabelTopologyZone, v1.LabelFailureDomainBetaRegion: v1.LabelTopologyRegion,
	"beta.kubernetes.io/os": v1.LabelOSStable, "beta.kubernetes.io/arch": v1.LabelArchStable, v1.LabelInstanceType: v1.LabelInstanceTypeStable,
}

// sameLabel returns the label of Kubernetes for another name of it. Volumes name the zone by a
// label of their driver.
func sameLabel(key string) string {
	if domain, name, _ := strings.Cut(key, "/"); name == "zone" && strings.HasPrefix(domain, "topology.") {
		return v1.LabelTopologyZone
	}
	return cmp.Or(otherNames[key], key)
}

// setByProviders reports whether every provider sets the label on new nodes, with a value that
// depends on the requirements of their pods. Karpenter calls such labels well-known.
func setByProviders(label string) bool {
	return slices.Contains([]string{v1.LabelTopologyZone, v1.LabelTopologyRegion, "topology.k8s.aws/zone-id", v1.LabelInstanceTypeStable,
		v1.LabelArchStable, v1.LabelOSStable, v1.LabelWindowsBuild}, label) || !strings.HasSuffix(label, "nodeclass") &&
		slices.ContainsFunc(providers.InstanceLabels, func(prefix string) bool { return strings.HasPrefix(label, prefix) })
}
