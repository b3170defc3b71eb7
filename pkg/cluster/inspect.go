package cluster

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// Inspection says what keeps one pod off nodes, the policy and its signals apart, in the state that the cluster is in: what the filters of
// the scheduler would say that Room knows of. Unlike Room it seats nobody first. It is not for concurrent use.
type Inspection struct {
	demand *Demand
	free   map[*Node]*amounts
}

// NewInspection returns the inspection of p, which need not be of s (see Hypothetical). A pod that stands on a node is taken to be on none:
// its own place is free to it.
func NewInspection(s *Snapshot, p *Pod) *Inspection {
	var places map[*Pod]*Node
	if p.Node != nil {
		places = map[*Pod]*Node{p: nil}
	}
	return &Inspection{demand: NewDemand(s, p, places), free: map[*Node]*amounts{}}
}

// Hypothetical returns a pod that is in no Snapshot, to be inspected: on no node, without volumes, and belonging to nothing.
func Hypothetical(pod *v1.Pod) *Pod { return &Pod{Pod: pod, Requests: requestsOf(pod)} }

// cordon is the taint that stands for a cordon, whether or not the node has it yet.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// Obstacles returns in words what keeps the pod off the node, most lasting first; nil if nothing does.
func (i *Inspection) Obstacles(node *Node) (all []string) {
	c := i.demand.class
	if !c.matches(node) {
		all = append(all, "not in the pod's node selector or affinity")
	}
	if !c.reaches(node) {
		all = append(all, "out of reach of the pod's volume")
	}
	if taint := c.keptOffBy(node); taint != "" {
		all = append(all, "taint "+taint)
	}
	cordoned := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cordon.Key })
	if node.Spec.Unschedulable && !cordoned && !corev1.TolerationsTolerateTaint(klog.Background(), c.pod.Spec.Tolerations, &cordon, true) {
		all = append(all, "taint "+cordon.Key)
	}
	all = append(all, i.short(node)...)
	if !i.demand.portsFree(node, nil) {
		all = append(all, "host port in use")
	}
	if !i.demand.counted {
		i.demand.countTerms()
	}
	return append(all, c.terms.refusals(i.demand.changes.index.numbers[node])...)
}

// short returns what the node has too little left of.
func (i *Inspection) short(node *Node) (all []string) {
	free := i.free[node]
	if free == nil {
		free = &amounts{}
		free.add(node.Status.Allocatable, 1)
		for _, p := range node.Pods {
			if p != i.demand.class.pod {
				free.add(p.Requests, -1)
			}
		}
		i.free[node] = free
	}
	need := &i.demand.class.needs
	for _, of := range []struct {
		name       string
		need, have int64
	}{
		{"cpu", need.milliCPU, free.milliCPU}, {"memory", need.memory, free.memory},
		{"ephemeral-storage", need.ephemeral, free.ephemeral}, {"pods", need.pods, free.pods},
	} {
		if of.need > 0 && of.need > of.have {
			all = append(all, "insufficient "+of.name)
		}
	}
	var others []string
	for name, n := range need.others {
		if n > 0 && n > free.others[name] {
			others = append(others, fmt.Sprintf("insufficient %s", name))
		}
	}
	slices.Sort(others)
	return append(all, others...)
}

// refusals returns in words which of the terms keep the pod off the node.
func (t *terms) refusals(node int) (all []string) {
	if t == nil {
		return nil
	}
	if !t.nearEnough(node) {
		all = append(all, "the pod's affinity to other pods")
	}
	if !t.farEnough(node) {
		all = append(all, "the pod's anti-affinity to other pods")
	}
	if !t.evenEnough(node) {
		all = append(all, "the pod's topology spread")
	}
	return all
}

// Feasibility says which pods some of a set of nodes could take at all, were they empty and in order: by the pods' own node selectors,
// affinity to nodes and tolerations, their volumes, and the size of nodes. It is not for concurrent use.
type Feasibility struct {
	nodes []*Node
	known map[*Revision][]feasible
}

// feasible is what is known of a class of pods.
type feasible struct {
	*class
	somewhere bool
}

// NewFeasibility returns the feasibility of nodes.
func NewFeasibility(nodes []*Node) *Feasibility {
	return &Feasibility{nodes: nodes, known: map[*Revision][]feasible{}}
}

// Somewhere reports whether some node could take the pod, which must be of a revision.
func (f *Feasibility) Somewhere(p *Pod) bool {
	for _, of := range f.known[p.Revision] {
		if of.has(p) {
			return of.somewhere
		}
	}
	c := newClass(p)
	somewhere := slices.ContainsFunc(f.nodes, c.suitsInOrder)
	f.known[p.Revision] = append(f.known[p.Revision], feasible{c, somewhere})
	return somewhere
}

// suitsInOrder reports whether the node would take pods of the class if it were empty and in order. What is wrong with it now is a taint of
// Kubernetes' own prefix.
func (c *class) suitsInOrder(node *Node) bool {
	var whole amounts
	whole.add(node.Status.Allocatable, 1)
	_, kept := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, c.pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return keepsOff(t) && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, true)
	return !kept && whole.hold(&c.needs) && c.matches(node) && c.reaches(node)
}
