package cluster

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// amounts are requests or capacities in whole units, CPU in thousandths.
type amounts struct {
	milliCPU, memory, ephemeral, pods int64
	others                            map[v1.ResourceName]int64 // nil: none
}

// add adds list times sign.
func (a *amounts) add(list v1.ResourceList, sign int64) {
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			a.milliCPU += sign * quantity.MilliValue()
		case v1.ResourceMemory:
			a.memory += sign * quantity.Value()
		case v1.ResourceEphemeralStorage:
			a.ephemeral += sign * quantity.Value()
		case v1.ResourcePods:
			a.pods += sign * quantity.Value()
		default:
			if a.others == nil {
				a.others = map[v1.ResourceName]int64{}
			}
			a.others[name] += sign * quantity.Value()
		}
	}
}

// hold reports whether there is enough of everything that need asks for. What it does not ask for may be overdrawn.
func (a *amounts) hold(need *amounts) bool {
	short := func(need, have int64) bool { return need > 0 && need > have }
	if short(need.pods, a.pods) || short(need.milliCPU, a.milliCPU) || short(need.memory, a.memory) || short(need.ephemeral, a.ephemeral) {
		return false
	}
	for name, n := range need.others {
		if short(n, a.others[name]) {
			return false
		}
	}
	return true
}

// free is what a node has left.
type free struct {
	measured bool
	amounts
	ports fwk.HostPortInfo // in use; nil: not looked at yet
}

// measure works out what is left of a node. Most are never asked for it.
func (at *site) measure() {
	if at.free.measured {
		return
	}
	at.free.measured = true
	at.free.add(at.Status.Allocatable, 1)
	for _, p := range at.Pods {
		at.free.add(p.Requests, -1)
	}
}

// usedPorts returns the host ports that are in use on a node.
func (at *site) usedPorts() fwk.HostPortInfo {
	if at.free.ports == nil {
		at.free.ports = fwk.HostPortInfo{}
		for _, p := range at.Pods {
			for _, port := range hostPorts(p.Pod) {
				at.free.ports.Add(port.HostIP, string(port.Protocol), port.HostPort)
			}
		}
	}
	return at.free.ports
}

// take takes room for one pod of a class.
func (at *site) take(c *class) {
	at.measure()
	at.free.add(c.pod.Requests, -1)
	if len(c.ports) > 0 {
		used := at.usedPorts()
		for _, port := range c.ports {
			used.Add(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
}

// class is all pods that the same nodes can take.
type class struct {
	pod      *Pod // one of them
	needs    amounts
	ports    []v1.ContainerPort
	affinity *nodeaffinity.RequiredNodeAffinity // nil: every node will do
	terms    *terms                             // nil: no other pod matters

	// suits remembers, by site.index, which nodes can take such pods at all.
	suits []suitability
	// from is, by group.index, before which of its nodes none will ever have room again.
	from []int
}

type suitability int8

const (
	unknown suitability = iota
	suitable
	unsuitable
)

// classOf returns the class of p. Only pods of one revision are compared.
func (r *Room) classOf(p *Pod) *class {
	var key any = p
	if p.Revision != nil {
		key = p.Revision
	} else if p.ReleasedFrom != nil {
		key = p.ReleasedFrom
	}
	for _, c := range r.classes[key] {
		if c.has(p) {
			return c
		}
	}
	c := newClass(p)
	c.terms = r.changes.newTerms(p)
	c.suits, c.from = make([]suitability, len(r.snapshot.Nodes)), make([]int, len(r.groups))
	r.classes[key] = append(r.classes[key], c)
	return c
}

// newClass returns the class of p with what says nothing of other pods.
func newClass(p *Pod) *class {
	c := &class{pod: p, ports: hostPorts(p.Pod)}
	c.needs.add(p.Requests, 1)
	if wanted := p.Spec.Affinity; len(p.Spec.NodeSelector) > 0 || wanted != nil && wanted.NodeAffinity != nil {
		affinity := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
		c.affinity = &affinity
	}
	return c
}

// has reports whether p is of the class, among pods of one revision.
func (c *class) has(p *Pod) bool {
	a, b := &c.pod.Spec, &p.Spec
	return c.pod == p || slices.Equal(c.pod.volumes, p.volumes) && slices.Equal(c.ports, hostPorts(p.Pod)) &&
		equality.Semantic.DeepEqual(c.pod.Requests, p.Requests) &&
		equality.Semantic.DeepEqual(a.NodeSelector, b.NodeSelector) && equality.Semantic.DeepEqual(a.Affinity, b.Affinity) &&
		equality.Semantic.DeepEqual(a.Tolerations, b.Tolerations) &&
		equality.Semantic.DeepEqual(a.TopologySpreadConstraints, b.TopologySpreadConstraints) &&
		c.terms.concern(c.pod, p)
}

// fits reports whether an open node takes one more pod of the class. Where it does not, ever says whether it may once other pods have been
// placed.
func (c *class) fits(at *site) (fits, ever bool) {
	at.measure()
	if !at.free.hold(&c.needs) {
		return false, false
	}
	if c.suits[at.index] == unknown {
		c.suits[at.index] = unsuitable
		if c.suit(at.Node) {
			c.suits[at.index] = suitable
		}
	}
	if c.suits[at.index] == unsuitable {
		return false, false
	}
	for _, port := range c.ports {
		if at.usedPorts().CheckConflict(port.HostIP, string(port.Protocol), port.HostPort) {
			return false, false
		}
	}
	return c.terms.allow(at.index), true
}

// suit reports whether a node can take pods of the class as far as neither depends on other pods.
func (c *class) suit(node *Node) bool {
	return c.keptOffBy(node) == "" && c.matches(node) && c.reaches(node)
}

// keptOffBy returns the key of a taint of the node that pods of the class do not tolerate; "" if there is none.
func (c *class) keptOffBy(node *Node) string {
	if len(node.Spec.Taints) > 0 {
		taint, kept := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, c.pod.Spec.Tolerations, keepsOff, true)
		if kept {
			return taint.Key
		}
	}
	return ""
}

// matches reports whether the node is one of those that the node selector and affinity of the class want.
func (c *class) matches(node *Node) bool {
	if c.affinity == nil {
		return true
	}
	match, err := c.affinity.Match(node.Node)
	return match && err == nil
}

// reaches reports whether the volumes of the class can be reached from the node.
func (c *class) reaches(node *Node) bool {
	return !slices.ContainsFunc(c.pod.volumes, func(pv *v1.PersistentVolume) bool {
		return volume.CheckNodeAffinity(pv, node.Labels) != nil
	})
}

// keepsOff reports whether a taint keeps pods off that do not tolerate it.
func keepsOff(taint *v1.Taint) bool { return taint.Effect != v1.TaintEffectPreferNoSchedule }

// hostPorts returns the ports of the node that a pod holds while it runs.
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
