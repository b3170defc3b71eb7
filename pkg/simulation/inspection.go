package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Inspection finds the reasons why one pod cannot run on a node in the current state of the
// cluster. It considers the same filters of the scheduler as Room, but neither the policy nor
// signals. Unlike Room, it does not place pending pods first. It is not safe for concurrent use.
type Inspection struct {
	demand *Demand
}

// NewInspection returns the inspection of p, which need not belong to s (see Hypothetical). A bound
// pod counts as unbound: the resources that it uses are available to it.
func NewInspection(s *snapshot.Snapshot, p *snapshot.Pod) *Inspection {
	return &Inspection{NewDemand(s, p, map[*snapshot.Pod]*snapshot.Node{p: nil})}
}

// Hypothetical returns a pod to inspect that is in no Snapshot. It is not bound, and has no volumes
// and no workload.
func Hypothetical(pod *v1.Pod) *snapshot.Pod {
	return &snapshot.Pod{Pod: pod, Requests: snapshot.RequestsOf(pod)}
}

// cordon is the taint of a cordoned node. An unschedulable node may not have it yet.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// Obstacles returns the reasons why the pod cannot run on the node, the most permanent first; nil
// if it can.
func (i *Inspection) Obstacles(node *snapshot.Node) (all []string) {
	c := i.demand.class
	if !c.matches(node) {
		all = append(all, "not in the pod's node selector or affinity")
	}
	if !c.reaches(node) {
		all = append(all, "out of reach of the pod's volume")
	}
	if taint := c.untoleratedTaint(node); taint != "" {
		all = append(all, "taint "+taint)
	}
	cordoned := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cordon.Key })
	if node.Spec.Unschedulable && !cordoned && !corev1.TolerationsTolerateTaint(klog.Background(), c.pod.Spec.Tolerations, &cordon, true) {
		all = append(all, "taint "+cordon.Key)
	}
	all = append(all, i.insufficient(node)...)
	if !i.demand.portsFree(node, nil) {
		all = append(all, "host port in use")
	}
	return append(all, i.demand.terms().refusals(i.demand.changes.index.Numbers[node])...)
}

// insufficient returns the resources that the node does not have enough of.
func (i *Inspection) insufficient(node *snapshot.Node) (all []string) {
	var free Amounts
	free.Add(node.Status.Allocatable, 1)
	for _, p := range node.Pods {
		if p != i.demand.class.pod {
			free.Add(p.Requests, -1)
		}
	}
	need := &i.demand.class.needs
	compare := func(name v1.ResourceName, need, have int64) {
		if need > 0 && need > have {
			all = append(all, fmt.Sprintf("insufficient %s", name))
		}
	}
	compare(v1.ResourceCPU, need.milliCPU, free.milliCPU)
	compare(v1.ResourceMemory, need.memory, free.memory)
	compare(v1.ResourceEphemeralStorage, need.ephemeral, free.ephemeral)
	compare(v1.ResourcePods, need.pods, free.pods)
	for _, name := range slices.Sorted(maps.Keys(need.others)) {
		compare(name, need.others[name], free.others[name])
	}
	return all
}

// refusals returns the terms that exclude the node.
func (t *terms) refusals(node int) (all []string) {
	if t == nil {
		return nil
	}
	if !t.satisfiesAffinity(node) {
		all = append(all, "the pod's affinity to other pods")
	}
	if !t.satisfiesAntiAffinity(node) {
		all = append(all, "the pod's anti-affinity to other pods")
	}
	if !t.satisfiesSpread(node) {
		all = append(all, "the pod's topology spread")
	}
	return all
}

// Feasibility determines whether any of a set of nodes could run a pod if the node were empty and
// healthy. It considers the pod's own node selector, node affinity, tolerations and volumes, and
// the size of the nodes. FitsNewNode and FitsOtherNode also consider nodes that an autoscaler may
// add, the pod's own required pod affinity and anti-affinity, and its hard topology spread. A
// Feasibility is not safe for concurrent use.
type Feasibility struct {
	nodes   []*snapshot.Node
	results map[*snapshot.Revision][]feasible

	// The rest is set by Provisioning.Feasibility only. kinds has an example of each kind of nodes.
	snapshot     *snapshot.Snapshot
	provisioning *Provisioning
	kinds        []*snapshot.Node
}

// feasible is the result for a class of pods.
type feasible struct {
	*class
	somewhere bool
}

// NewFeasibility returns the feasibility on nodes.
func NewFeasibility(nodes []*snapshot.Node) *Feasibility {
	return &Feasibility{nodes: nodes, results: map[*snapshot.Revision][]feasible{}}
}

// FitsAnyNode reports whether some node could run the pod, which must belong to a revision.
func (f *Feasibility) FitsAnyNode(p *snapshot.Pod) bool {
	for _, result := range f.results[p.Revision] {
		if result.contains(p) {
			return result.somewhere
		}
	}
	c := newClass(p, p.Requests)
	somewhere := slices.ContainsFunc(f.nodes, c.suitableWhenHealthy)
	f.results[p.Revision] = append(f.results[p.Revision], feasible{c, somewhere})
	return somewhere
}

// suitableWhenHealthy reports whether the node would accept pods of the class if it were empty and
// healthy. Temporary taints are ignored.
func (c *class) suitableWhenHealthy(node *snapshot.Node) bool {
	var whole Amounts
	whole.Add(node.Status.Allocatable, 1)
	_, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, c.pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return snapshot.ExcludesPods(t) && !temporary(t)
	}, true)
	return !untolerated && whole.Covers(&c.needs) && c.matches(node) && c.reaches(node)
}

// signals contains the known signals.
var signals = providers.Signals()

// temporary reports whether a taint indicates the current state of a node, and not its kind: taints
// with the prefixes of Kubernetes, and taints that are signals.
func temporary(t *v1.Taint) bool {
	return strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") ||
		slices.ContainsFunc(signals, func(s providers.Signal) bool { return s.Kind == providers.TaintSignal && s.Key == t.Key })
}
