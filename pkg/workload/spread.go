package workload

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
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

// domains knows which topology keys have a domain that only on-demand can serve.
type domains struct {
	policy *decision.Policy
	nodes  corelisters.NodeLister

	mu sync.Mutex
	// onlyOnDemand contains the answers for the keys that were asked for since the labels of a node
	// changed.
	onlyOnDemand map[string]bool
}

// newDomains returns domains that reads from factory, which must not have been started.
func newDomains(factory informers.SharedInformerFactory, policy *decision.Policy) (*domains, error) {
	nodes := factory.Core().V1().Nodes()
	d := &domains{policy: policy, nodes: nodes.Lister(), onlyOnDemand: map[string]bool{}}
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
	clear(d.onlyOnDemand)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if answer, known := d.onlyOnDemand[key]; known {
		return answer
	}
	nodes, _ := d.nodes.List(labels.Everything()) // a cache lister returns no error
	hasSpot := map[string]bool{}
	for _, node := range nodes {
		if value, ok := node.Labels[key]; ok {
			hasSpot[value] = hasSpot[value] || d.policy.Capacity(node.Labels, d.policy.LabelGrace).Type == decision.Spot
		}
	}
	d.onlyOnDemand[key] = slices.Contains(slices.Collect(maps.Values(hasSpot)), false)
	return d.onlyOnDemand[key]
}
