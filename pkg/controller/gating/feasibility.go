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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// feasibility is what the nodes imply for gated pods. It is at most a second old.
type feasibility struct {
	volumesOf func(*v1.Pod) []*v1.PersistentVolume

	mu sync.Mutex
	*simulation.Feasibility
	*snapshot.Snapshot
	room *simulation.Room // on on-demand nodes; nil until takesRoom needs it
	// labels and hidden are the result of Labels.ForNodes for the nodes, if labels is not nil.
	labels *Labels
	hidden *v1.Node
	at     time.Time
}

// couldRun reports whether a node of a capacity type, existing or new, could run the gated pod.
// Topology spread does not count, because it changes with each pod that is placed.
func (a *Assigner) couldRun(pod *v1.Pod, requires decision.AssignedCapacity) bool {
	own := *pod
	own.Spec.TopologySpreadConstraints = nil
	p := simulation.Hypothetical(&own)
	p.Revision = &snapshot.Revision{Key: workload.RevisionOf(pod)} // an autoscaler may have refused it
	p.Volumes = a.feasibility.volumesOf(pod)
	a.feasibility.mu.Lock()
	defer a.feasibility.mu.Unlock()
	a.refresh()
	return simulation.Excessive(p) || a.feasibility.FitsLater(p, requires)
}

// refresh updates a.feasibility if it is too old. The caller must hold its lock.
func (a *Assigner) refresh() {
	f, now := &a.feasibility, a.clock.Now()
	if f.Feasibility != nil && now.Sub(f.at) < time.Second {
		return
	}
	s := a.snapshot(now)
	f.Feasibility, f.at, f.Snapshot, f.labels, f.room = a.settings.Provisioning.Feasibility(s), now, s, nil, nil
}

// labelsFor returns the labels for the affinity of a pod. hidden is the name of a spot node that
// they do not exclude, if the pod's scheduler could place the pod there; empty if there is none.
func (a *Assigner) labelsFor(pod *v1.Pod) (labels *Labels, hidden string) {
	a.feasibility.mu.Lock()
	defer a.feasibility.mu.Unlock()
	a.refresh()
	if a.feasibility.labels == nil {
		a.feasibility.labels, a.feasibility.hidden = a.settings.Labels.ForNodes(a.settings.Policy, a.feasibility.Nodes)
	}
	labels = a.feasibility.labels.forPod(pod, a.feasibility.Nodes)
	if !a.settings.Scope.KeepsScheduler(pod) {
		return &Labels{notSpot: a.settings.Labels.notSpot, spot: labels.spot}, ""
	}
	if a.feasibility.hidden != nil {
		hidden = a.feasibility.hidden.Name
	}
	return labels, hidden
}

// takesRoom reports whether an on-demand node has room for the gated pod now, after all pods that
// wait for on-demand were placed. The pod then takes that room.
func (a *Assigner) takesRoom(pod *v1.Pod) bool {
	p := a.withoutPreemption(pod)
	a.feasibility.mu.Lock()
	defer a.feasibility.mu.Unlock()
	a.refresh()
	if a.feasibility.room == nil {
		a.feasibility.room = a.roomOnOnDemand()
	}
	to, _ := a.feasibility.room.Replace(p, decision.AssignedOnDemand)
	return to != nil
}

// roomOnOnDemand returns the room on on-demand nodes, after the pods that wait for one were placed.
// The caller must hold the lock of a.feasibility.
func (a *Assigner) roomOnOnDemand() *simulation.Room {
	for _, p := range a.feasibility.Pods {
		if p.Node.Facts.Capacity.Type == decision.OnDemand && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			p.Requests = workload.RequestsOf(p.Pod)
			p.Node.Pods = append(p.Node.Pods, p)
		}
	}
	room, revisions := simulation.NewRoom(a.feasibility.Snapshot), map[workload.OwnerKey]*snapshot.Revision{}
	for _, obj := range a.pods.List() {
		pod := obj.(*v1.Pod)
		if pod.Spec.NodeName != "" || !workload.Live(pod) {
			continue
		}
		made := a.recorded(pod.UID).assigned
		waits := made != nil && made.assigned == decision.AssignedOnDemand ||
			!workload.Gated(pod) && workload.OnlyOnDemand(pod, a.settings.Policy)
		if !waits {
			continue
		}
		p, key := a.withoutPreemption(pod), workload.RevisionOf(pod)
		if p.Revision = revisions[key]; p.Revision == nil { // the room examines equal pods of a revision only once
			p.Revision = &snapshot.Revision{Key: key}
			revisions[key] = p.Revision
		}
		room.Replace(p, decision.AssignedOnDemand)
	}
	return room
}

// withoutPreemption returns the pod for a simulation in which it preempts no other pod: its
// scheduler may not preempt, and the search would take long.
func (a *Assigner) withoutPreemption(pod *v1.Pod) *snapshot.Pod {
	own := *pod
	own.Spec.PreemptionPolicy = new(v1.PreemptNever)
	p := simulation.Hypothetical(&own)
	p.Volumes = a.feasibility.volumesOf(pod)
	return p
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
