package cluster

import (
	fwk "k8s.io/kube-scheduler/framework"
)

// Demand is what a pod that waits asks of a node beside its requests, as far as Room knows of it: that it is open, with taints that the pod
// tolerates, in its node selector and affinity, within reach of its bound volumes, with its host ports free, and that its own required pod
// affinity and anti-affinity and its hard topology spread allow it. It is not for concurrent use.
type Demand struct {
	changes *changes
	class   *class
	places  map[*Pod]*Node
	// counted: the class has its terms, which are not worked out before a node is suitable but for them.
	counted bool
}

// NewDemand returns the demand of p, which is on no node of s. places says where pods are taken to be that will leave their nodes or get one,
// nil for nowhere; it must not change while the Demand is in use.
func NewDemand(s *Snapshot, p *Pod, places map[*Pod]*Node) *Demand {
	return &Demand{changes: newChanges(indexOf(s)), class: newClass(p), places: places}
}

// Takes reports whether a node would take the pod if it had room for its requests, once the pods in then, which are on nodes of the Snapshot and
// not in places, are where that says; nil is nowhere.
func (d *Demand) Takes(node *Node, then map[*Pod]*Node) bool {
	if !open(node) || !d.class.suit(node) || !d.portsFree(node, then) {
		return false
	}
	if !d.counted {
		d.countTerms()
	}
	d.changes.move(then, 1)
	defer d.changes.move(then, -1)
	return d.class.terms.allow(d.changes.index.numbers[node])
}

// countTerms works out the terms of the class.
func (d *Demand) countTerms() {
	d.counted, d.class.terms = true, d.changes.newTerms(d.class.pod)
	d.changes.move(d.places, 1)
}

// portsFree reports whether nobody on the node uses a port of the pod's.
func (d *Demand) portsFree(node *Node, then map[*Pod]*Node) bool {
	if len(d.class.ports) == 0 {
		return true
	}
	used := fwk.HostPortInfo{}
	use := func(p *Pod) {
		for _, port := range hostPorts(p.Pod) {
			used.Add(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
	for _, p := range node.Pods {
		_, placed := d.places[p]
		if _, leaves := then[p]; !placed && !leaves {
			use(p)
		}
	}
	for _, places := range []map[*Pod]*Node{d.places, then} {
		for p, to := range places {
			if to == node {
				use(p)
			}
		}
	}
	for _, port := range d.class.ports {
		if used.CheckConflict(port.HostIP, string(port.Protocol), port.HostPort) {
			return false
		}
	}
	return true
}
