package simulation

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// unused returns the unused resources of the node. It computes them on first use, because most
// nodes never need them.
func (at *site) unused() *workload.Resources {
	if at.free == nil {
		at.free = new(at.Free(func(*snapshot.Pod) bool { return true }))
	}
	return at.free
}

func (at *site) usedPorts() fwk.HostPortInfo {
	if at.ports == nil {
		at.ports = fwk.HostPortInfo{}
		for _, p := range at.Pods {
			countPorts(at.ports, hostPorts(p.Pod), 1)
		}
	}
	return at.ports
}

func (at *site) reserve(c *class) {
	at.unused().Add(c.requests, -1)
	at.without = nil
	countPorts(at.usedPorts(), c.ports, 1)
}

// class is a set of pods that fit on the same nodes.
type class struct {
	pod      *snapshot.Pod // an example
	requests v1.ResourceList
	ports    []v1.ContainerPort
	terms    *terms // nil: independent of other pods
	// repelledBy is the result of Index.AntiAffinities for each pod of the class.
	repelledBy []*snapshot.AntiAffinity
	// reassigned reports whether the pods lose the capacity type that package gating assigned.
	reassigned bool
	*workload.Requirements

	// judged and suitable cache, by site.index, whether a node is suitable for such pods.
	judged, suitable []bool
	// next contains, by group.index, the index of the group's first node that may still have room.
	next []int
}

// classOf returns the class of p. It compares only pods of one revision. The replacement of a pod
// that was assigned a capacity type gets its own assignment: requires, or none after spot.
// Otherwise it is expected to get the same.
func (r *Room) classOf(p *snapshot.Pod, requires decision.AssignedCapacity) *class {
	assigned := workload.AssignedCapacityOf(p.Pod)
	reassigned := p.Spec.NodeName != "" && (assigned == decision.AssignedSpot ||
		assigned == decision.AssignedOnDemand && requires != decision.Unassigned)
	var key any = p
	if revision := p.OwnRevision(); revision != nil {
		key = revision
	}
	repelledBy := r.changes.index.AntiAffinities(p)
	for _, c := range r.classes[key] {
		if c.reassigned == reassigned && slices.Equal(c.repelledBy, repelledBy) && c.contains(p) {
			return c
		}
	}
	needs, _ := p.Successor()
	c := newClass(p, needs)
	c.repelledBy, c.reassigned = repelledBy, reassigned
	if reassigned {
		c.Requirements = workload.NewRequirements(workload.BeforeAssignment(p.Pod, r.snapshot.Policy), p.Volumes, needs)
	}
	c.terms = r.changes.newTerms(p)
	c.judged, c.suitable, c.next = make([]bool, len(r.sites)), make([]bool, len(r.sites)), make([]int, len(r.groups))
	r.classes[key] = append(r.classes[key], c)
	return c
}

// newClass returns the class of p with these requests, without the terms that depend on other pods.
func newClass(p *snapshot.Pod, requests v1.ResourceList) *class {
	return &class{
		pod: p, requests: requests, ports: hostPorts(p.Pod), Requirements: workload.NewRequirements(p.Pod, p.Volumes, requests),
	}
}

// contains reports whether p belongs to the class. p must be of the same revision. Successors of
// equal pods are equal, but a pod that is not bound is its own successor.
func (c *class) contains(p *snapshot.Pod) bool {
	a, b := &c.pod.Spec, &p.Spec
	return c.pod == p || slices.Equal(c.pod.Volumes, p.Volumes) && slices.Equal(c.ports, hostPorts(p.Pod)) &&
		equality.Semantic.DeepEqual(c.pod.Requests, p.Requests) && (a.NodeName == "") == (b.NodeName == "") &&
		corev1.PodPriority(c.pod.Pod) == corev1.PodPriority(p.Pod) &&
		equality.Semantic.DeepEqual(a.NodeSelector, b.NodeSelector) && equality.Semantic.DeepEqual(a.Affinity, b.Affinity) &&
		equality.Semantic.DeepEqual(a.Tolerations, b.Tolerations) &&
		equality.Semantic.DeepEqual(a.TopologySpreadConstraints, b.TopologySpreadConstraints) &&
		c.terms.applyTo(c.pod, p)
}

// fits reports whether an open node has room for one more pod of the class. If it has not, ever
// reports whether it may have room after other pods were placed.
func (c *class) fits(at *site) (fits, ever bool) {
	if !at.unused().Covers(&c.Needs) || !c.suits(at) {
		return false, false
	}
	if len(c.ports) > 0 && conflict(at.usedPorts(), c.ports) {
		return false, false
	}
	return c.terms.allows(at.index), true
}

// suits reports whether the node is suitable for pods of the class, as far as neither depends on
// other pods. It caches the result.
func (c *class) suits(at *site) bool {
	if !c.judged[at.index] {
		c.judged[at.index] = true // remains if Admit panics
		c.suitable[at.index] = c.Admit(at.Node.Node, workload.ExcludesPods)
	}
	return c.suitable[at.index]
}

// countPorts adds ports to used (by 1) or removes them (by -1).
func countPorts(used fwk.HostPortInfo, ports []v1.ContainerPort, by int) {
	for _, port := range ports {
		if by > 0 {
			used.Add(port.HostIP, string(port.Protocol), port.HostPort)
		} else {
			used.Remove(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
}

func conflict(used fwk.HostPortInfo, ports []v1.ContainerPort) bool {
	return slices.ContainsFunc(ports, func(port v1.ContainerPort) bool {
		return used.CheckConflict(port.HostIP, string(port.Protocol), port.HostPort)
	})
}

// hostPorts returns the host ports that the pod uses while it runs.
func hostPorts(pod *v1.Pod) (ports []v1.ContainerPort) {
	collect := func(container *v1.Container) {
		for _, port := range container.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			collect(c)
		}
	}
	for i := range pod.Spec.Containers {
		collect(&pod.Spec.Containers[i])
	}
	return ports
}
