package workload

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// SpreadByAffinity reports whether required node affinity changes the meaning of a topology spread
// constraint of the pod with whenUnsatisfiable DoNotSchedule. kube-scheduler counts only the nodes
// that the pod's node affinity admits, and the pods on them, unless nodeAffinityPolicy is Ignore.
func SpreadByAffinity(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.DoNotSchedule &&
			ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) != v1.NodeInclusionPolicyIgnore
	})
}

const (
	// maxTopologyKeys limits the memory for answers, because the keys of pods may be any text.
	maxTopologyKeys = 1_000
	// maxLabelKey is the length of the longest key of a label: prefix, slash and name.
	maxLabelKey = validation.DNS1123SubdomainMaxLength + 1 + validation.LabelValueMaxLength
)

// domains knows which topology keys have a domain that only on-demand can serve.
type domains struct {
	policy *decision.Policy
	nodes  corelisters.NodeLister

	mu sync.Mutex
	// onlyOnDemand contains answers (bool) by key, until the labels of a node change.
	onlyOnDemand *lru.Cache
}

// newDomains returns domains that reads from factory, which must not have been started.
func newDomains(factory informers.SharedInformerFactory, policy *decision.Policy) (*domains, error) {
	nodes := factory.Core().V1().Nodes()
	d := &domains{policy: policy, nodes: nodes.Lister(), onlyOnDemand: lru.New(maxTopologyKeys)}
	_, err := nodes.Informer().AddEventHandler(informer.Handler[*v1.Node]{
		Add: func(*v1.Node) { d.reset() },
		Update: func(before, node *v1.Node) {
			if !maps.Equal(before.Labels, node.Labels) {
				d.reset()
			}
		},
		Delete: func(*v1.Node) { d.reset() },
	})
	return d, err
}

func (d *domains) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onlyOnDemand.Clear()
}

// spreadToOnDemand reports whether a topology spread constraint of the pod with whenUnsatisfiable
// DoNotSchedule has a domain with on-demand nodes and without spot nodes. Without a replica there,
// the other domains fill up. The pod's node selector is not considered.
func (d *domains) spreadToOnDemand(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.DoNotSchedule && d.hasOnlyOnDemand(c.TopologyKey)
	})
}

// hasOnlyOnDemand reports whether some nodes with one value of a label are all on-demand.
func (d *domains) hasOnlyOnDemand(key string) bool {
	if len(key) > maxLabelKey { // no node has such a label
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if answer, known := d.onlyOnDemand.Get(key); known {
		return answer.(bool)
	}
	nodes, _ := d.nodes.List(labels.Everything()) // a cache lister returns no error
	hasSpot := map[string]bool{}
	for _, node := range nodes {
		if value, ok := node.Labels[key]; ok {
			hasSpot[value] = hasSpot[value] || d.policy.Capacity(node.Labels, d.policy.LabelGrace).Type == decision.Spot
		}
	}
	answer := slices.Contains(slices.Collect(maps.Values(hasSpot)), false)
	d.onlyOnDemand.Add(key, answer)
	return answer
}
