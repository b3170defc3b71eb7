package gating

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// feasibility is the input of couldRun. It is at most a second old.
type feasibility struct {
	volumesOf func(*v1.Pod) []*v1.PersistentVolume

	mu sync.Mutex
	*simulation.Feasibility
	at time.Time
}

// couldRun reports whether a node of a capacity type, existing or new, could run the gated pod.
// Topology spread does not count, because it changes with each pod that is placed.
func (a *Assigner) couldRun(pod *v1.Pod, requires decision.AssignedCapacity) bool {
	own := *pod
	own.Spec.TopologySpreadConstraints = nil
	p := simulation.Hypothetical(&own)
	p.Volumes = a.feasibility.volumesOf(pod)
	a.feasibility.mu.Lock()
	defer a.feasibility.mu.Unlock()
	if now := a.clock.Now(); a.feasibility.Feasibility == nil || now.Sub(a.feasibility.at) >= time.Second {
		a.feasibility.Feasibility, a.feasibility.at = a.settings.Provisioning.Feasibility(a.snapshot(now)), now
	}
	return simulation.Excessive(p) || a.feasibility.FitsLater(p, requires)
}

// snapshot returns the nodes and the bound pods, which pod affinity may select.
func (a *Assigner) snapshot(now time.Time) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Now: now}
	byName := map[string]*snapshot.Node{}
	for _, node := range snapshot.All(a.nodes) {
		n := &snapshot.Node{Node: node, Facts: decision.Node{Capacity: a.capacity(node)}}
		s.Nodes, byName[node.Name] = append(s.Nodes, n), n
	}
	for _, obj := range a.pods.List() {
		if pod := obj.(*v1.Pod); byName[pod.Spec.NodeName] != nil {
			s.Pods = append(s.Pods, &snapshot.Pod{Pod: pod, Node: byName[pod.Spec.NodeName]})
		}
	}
	slices.SortFunc(s.Pods, func(a, b *snapshot.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return s
}
